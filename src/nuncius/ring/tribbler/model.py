"""How users, subscriptions and tribbles lie in the key-value store.

Everything of a user is on the user's partition: the part of a key before the first ':' decides where it is.

| key | |
|---|---|
| `dga:user` | a list with the name in it: there is such a user. Who appends it first has made the user |
| `dga:subscriptions` | a list: whom the user follows |
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
"""A read answers with at most so many tribbles."""
CHUNK = 16
"""Ids a list of them. Small, because a feed of many users reads the newest list of each."""
MAX_NAME = 1000
"""Bytes of a user's name: the longest key of a user is to fit into a key."""
TOPIC = "tribbles"
"""Where every tribble is an entry, too: its key is the user's name, its body the tribble's JSON."""

Reference = tuple[int, str]
"""A tribble by its posting time, negative, and its user. So the order of references is the order of feeds:
newest first, and those of the same nanosecond by their users' names."""


class TribbleStatus(IntEnum):
    """What the calls of the Tribbler service answer with."""

    OK = 0
    ENOSUCHUSER = 1
    ENOSUCHTARGETUSER = 2
    EEXISTS = 3


class Tribble(msgspec.Struct, frozen=True, gc=False):
    """Who said what, when (nanoseconds since 1970)."""

    user: str
    posted: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    contents: str


class NoTribble(Exception):
    """Somebody else has written this."""


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
    """A tribble in a list of its user's."""
    return f"{posted:016x}"


def posted_at(item: str) -> int:
    return int(item, 16)


def encode_tribble(tribble: Tribble) -> bytes:
    try:
        return _ENCODER.encode(tribble)
    except UnicodeEncodeError:  # bytes that are no text: escaped, as the storage layer carries them
        return json.dumps(msgspec.structs.asdict(tribble)).encode()


def decode_tribble(value: str | bytes) -> Tribble:
    """Raises NoTribble when it is something else."""
    try:
        return _DECODER.decode(value)
    except msgspec.DecodeError:
        try:
            return msgspec.convert(json.loads(value), Tribble)
        except (msgspec.ValidationError, ValueError, RecursionError) as error:
            raise NoTribble(str(error)) from error


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Tribble)
