"""Headers of STOMP frames and headers of messages.

The headers of a SEND are stored with the message, except those about the frame itself. The listener adds its
own headers to a MESSAGE. If both use a name, the listener's header counts and the sender's is left out.
"""

import msgspec

from nuncius.broker.limits import decode_headers, encode_headers
from nuncius.doors.stomp.errors import StompRefusal
from nuncius.doors.stomp.frames.codec import Frame
from nuncius.doors.stomp.frames.versions import Version, header_line

OWN_ID = "message-id"  # set by the sender: a second message with the same id is not stored
SHOWN_ID = "sender-message-id"  # the same id in a MESSAGE
DEFAULT_PRIORITY = 4

_OF_THE_FRAME = frozenset(("destination", "receipt", "transaction", "content-length"))
_OF_THE_DOOR = frozenset(
    (
        "destination",
        "subscription",
        "ack",
        "content-length",
        "redelivered",
        "attempt",
        "receipt",
        "transaction",
    )
)
_NUMBER_DIGITS = 18


def required(frame: Frame, name: str) -> str:
    value = frame.headers.get(name)
    if value is None:
        raise StompRefusal(f"{frame.command} needs a header {name}")
    return value


class SentMessage(msgspec.Struct, frozen=True):
    """The message in a SEND frame."""

    body: bytes
    headers: str | None  # JSON text
    key: str | None
    priority: int
    own_id: str | None


def sent(frame: Frame, *, to_queue: bool) -> SentMessage:
    """Return the message in a SEND. A queue uses `priority` and a topic `key`; that one is not repeated in
    the headers."""
    given = frame.headers
    left_out = _OF_THE_FRAME | {"priority" if to_queue else "key"}
    headers = {name: value for name, value in given.items() if name not in left_out}
    if "expires" in given:
        _number("expires", given["expires"], 10**_NUMBER_DIGITS)
    priority = DEFAULT_PRIORITY
    if "priority" in given:
        priority = _number("priority", given["priority"], 9)
    return SentMessage(
        frame.body,
        encode_headers(headers) if headers else None,
        None if to_queue else given.get("key"),
        priority + 1,
        given.get(OWN_ID),
    )


def _number(name: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > _NUMBER_DIGITS or int(text) > most:
        raise StompRefusal(f"{name} is a whole number from 0 to {most}, not {text[:100]!r}")
    return int(text)


class Shown(msgspec.Struct, frozen=True, gc=False):
    """Headers of a message as lines of a frame, and its expiry (milliseconds since 1970; 0: never)."""

    lines: bytes
    expires: int
    has_time: bool


NOTHING = Shown(b"", 0, False)


def shown(text: str | None, version: Version, left_out: str) -> Shown:
    """Render headers from `text`, their JSON. `left_out` is a header that the listener adds itself."""
    if text is None:
        return NOTHING
    headers = decode_headers(text)
    lines = []
    for name, value in headers.items():
        if name not in _OF_THE_DOOR and name != left_out:
            lines.append(header_line(SHOWN_ID if name == OWN_ID else name, value, version))
    expires = headers.get("expires", "0")
    return Shown(
        "".join(lines).encode(),
        int(expires) if expires.isascii() and expires.isdecimal() and len(expires) <= _NUMBER_DIGITS else 0,
        "timestamp" in headers,
    )
