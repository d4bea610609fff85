"""The layout of users, subscriptions and tribbles in the key-value store.

All keys of a user are on the user's node: the part of a key before the first ':' determines it.

| key | |
|---|---|
| `dga:user` | a list with the name in it: the user exists. The first append creates the user |
| `dga:subscriptions` | a list: the users that the user follows |
| `dga:post-ID` | a tribble, as JSON. ID is the posting time in nanoseconds, 16 hexadecimal digits |
| `dga:posts-N` | a list of at most CHUNK ids, oldest first; N counts from 0 |
| `dga:chunk` | the number of the newest such list |
| `dga:timeline` | the home feed as the pipeline last computed it |

A key is a user's name, ':' and a word without ':', so names may be anything, and no two users share a key.
"""

import json
from enum import IntEnum
from typing import Annotated

import msgspec

LIMIT = 100
"""The maximum number of tribbles that a read returns."""
CHUNK = 16
"""Ids per list. Small, because a feed of many users reads the newest list of each."""
MAX_NAME = 1000
"""Bytes of a user's name, so that the longest key of a user fits into a key."""
TOPIC = "tribbles"
"""The topic that has every tribble as an entry, too: its key is the user's name, its body the tribble's
JSON."""

Reference = tuple[int, str]
"""A tribble by its negative posting time and its user. So the order of references is the order of feeds:
newest first, and those of the same nanosecond by user name."""


class TribbleStatus(IntEnum):
    """The results of the Tribbler service's calls."""

    OK = 0
    ENOSUCHUSER = 1
    ENOSUCHTARGETUSER = 2
    EEXISTS = 3


class StoredTribble(msgspec.Struct, frozen=True, gc=False):
    """A user's post, with its time in nanoseconds since 1970."""

    user: str
    posted: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    contents: str


class NoTribble(Exception):
    """The value or entry is not a tribble: another program has written it."""


def user_key(user: str) -> str:
    return f"{user}:user"


def subscriptions_key(user: str) -> str:
    return f"{user}:subscriptions"


def chunk_key(user: str) -> str:
    return f"{user}:chunk"


def posts_key(user: str, chunk: int) -> str:
    return f"{user}:posts-{chunk}"


def post_key(user: str, posted: int) -> str:
    return f"{user}:post-{posted:016x}"


def timeline_key(user: str) -> str:
    return f"{user}:timeline"


def item(posted: int) -> str:
    """Return a tribble's item in its user's lists."""
    return f"{posted:016x}"


def posted_at(item: str) -> int:
    return int(item, 16)


def encode_tribble(tribble: StoredTribble) -> bytes:
    try:
        return _ENCODER.encode(tribble)
    except UnicodeEncodeError:  # bytes that are not UTF-8 are escaped, as in the storage layer
        return json.dumps(msgspec.structs.asdict(tribble)).encode()


def decode_tribble(value: str | bytes) -> StoredTribble:
    """Decode a tribble. Raises NoTribble if the value is something else."""
    try:
        return _DECODER.decode(value)
    except msgspec.DecodeError:
        try:
            return msgspec.convert(json.loads(value), StoredTribble)
        except (msgspec.ValidationError, ValueError, RecursionError) as error:
            raise NoTribble(str(error)) from error


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(StoredTribble)
