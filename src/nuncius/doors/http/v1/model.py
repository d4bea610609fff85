"""The data of the API under /v1."""

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec

from nuncius.broker.errors import InvalidInput
from nuncius.broker.limits import NAME_LENGTH, Limits, decode_headers, encode_headers
from nuncius.broker.model import FetchedEntries, Placed, TailSlice

LIMITS = Limits()  # the defaults; a node may be given others
INT32 = 2**31 - 1
INT64 = 2**63 - 1
MAX_WAIT = 60.0  # seconds of a long poll
MAX_MESSAGES = 10_000  # of one answer

# No control characters, no blanks at the ends; `check_name` knows all of Unicode's unprintable characters.
NAME_PATTERN = r"^(?! )[^\x00-\x1f\x7f-\xa0]+(?<! )$"

Name = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=NAME_LENGTH, extra_json_schema={"pattern": NAME_PATTERN}),
]
Number = Annotated[int, msgspec.Meta(ge=1, le=INT32)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=INT64)]
Wait = Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT, description="Seconds to wait for the first one.")]
Limit = Annotated[int, msgspec.Meta(ge=1, le=MAX_MESSAGES)]
NO_NUL = r"^[^\x00]*$"
Key = Annotated[str, msgspec.Meta(extra_json_schema={"maxLength": LIMITS.max_key, "pattern": NO_NUL})]
Text = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": NO_NUL})]
MessageHeaders = dict[Text, Text]
MANY = msgspec.Meta(extra_json_schema={"minItems": 1, "maxItems": LIMITS.max_batch})
Encoding = Literal["utf-8", "base64"]
Time = Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})]


class Listing(msgspec.Struct):
    """Part of a list in the order of names: at most `limit` items after the name `after`."""

    after: Annotated[str, msgspec.Meta(max_length=NAME_LENGTH, pattern=NO_NUL)] = ""
    limit: Limit = MAX_MESSAGES


class NewMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message to publish. `body` is text, or base64 of bytes."""

    body: str
    encoding: Encoding = "utf-8"
    key: Key | None = None
    headers: MessageHeaders = {}


class NewMessages(msgspec.Struct, forbid_unknown_fields=True):
    """Messages to publish together, all or none."""

    messages: Annotated[list[NewMessage], MANY]
    partition: Number | None = None


class V1Message(msgspec.Struct):
    """A message of a topic. `body` is text if it is UTF-8, else base64."""

    partition: int
    offset: int
    time: Time
    body: str
    encoding: Encoding
    key: str | None = None
    headers: dict[str, str] = {}


class V1Messages(msgspec.Struct):
    messages: list[V1Message]


class V1Spot(msgspec.Struct, frozen=True):
    """The place of a message."""

    partition: int
    offset: int


class V1Published(msgspec.Struct):
    """Where the message is; null if it was stored before, under the same Idempotency-Key."""

    stored: V1Spot | None


class PublishedBatch(msgspec.Struct):
    """Where the messages are; null for those that were stored before, under the same Idempotency-Key."""

    stored: list[V1Spot | None]


class Removed(msgspec.Struct):
    removed: int


def to_bytes(text: str, encoding: Encoding) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if encoding == "base64" else text.encode()
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(f"the body is not {encoding} ({error})") from None


def to_text(body: bytes) -> tuple[str, Encoding]:
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def columns(
    messages: Sequence[NewMessage],
) -> tuple[list[bytes], list[str | None] | None, list[str | None] | None]:
    """Return bodies, keys and headers; None for a column in which no message has a value."""
    bodies = [to_bytes(message.body, message.encoding) for message in messages]
    keys = [message.key for message in messages] if any(m.key is not None for m in messages) else None
    headers = [encode_headers(m.headers) for m in messages] if any(m.headers for m in messages) else None
    return bodies, keys, headers


def messages_of(partition: int, entries: FetchedEntries) -> Iterator[V1Message]:
    for index, (body, arrived) in enumerate(zip(entries.bodies, entries.times, strict=True)):
        text, encoding = to_text(body)
        headers = entries.headers and entries.headers[index]
        yield V1Message(
            partition,
            entries.first_offset + index,
            datetime.fromtimestamp(arrived / 1e6, UTC),
            text,
            encoding,
            entries.keys[index] if entries.keys else None,
            decode_headers(headers) if headers else {},
        )


def messages_in(pieces: Iterable[TailSlice]) -> list[V1Message]:
    return [message for piece in pieces for message in messages_of(piece.partition, piece.entries)]


def spots(placed: Placed, count: int) -> list[V1Spot | None]:
    if placed.scattered is not None:
        return [None if offset < 0 else V1Spot(partition, offset) for partition, offset in placed.scattered]
    new = count - placed.skipped
    return [None] * placed.skipped + [V1Spot(placed.partition, placed.offset + n) for n in range(new)]
