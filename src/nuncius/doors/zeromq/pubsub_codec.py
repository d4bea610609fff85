"""Encode and decode requests and answers of the report's tables, as frames of ZeroMQ messages.

A request is one frame of text with its fields separated by blanks, as the authors' programs send it, or one
frame per field, as the tables may be read. The answer has the form of its request. The text form is UTF-8; a
body that is not is sent with U+FFFD for undecodable bytes. In the other form a body is any bytes.

    p PUBLISHER TOPIC COUNT TEXT      a SUBSCRIBERS | e COUNT_THERE_IS
    g SUBSCRIBER TOPIC ID             a LATEST_ID TEXT | e LATEST_ID | e ns
    s SUBSCRIBER TOPIC                a LATEST_ID | e as
    u SUBSCRIBER TOPIC                a | e ns
    anything else                     i

There are two fields besides those of the report, which its clients never send: `g ... wait=SECONDS` waits for
the message, and the answer to `s ... resume` is `e as LAST_ID`, with the id that was confirmed last.
"""

from collections.abc import Sequence

import msgspec

MAX_NUMBER = 2**62  # larger numbers are reduced to it
_DIGITS = 18
_WAIT = b"wait="
_RESUME = b"resume"
_KINDS = (b"g", b"p", b"s", b"u")

ACCEPTED, ERROR, INVALID = b"a", b"e", b"i"
NOT_SUBSCRIBED, ALREADY_SUBSCRIBED = b"ns", b"as"


class Malformed(ValueError):
    """The frames are no request."""


class GetRequest(msgspec.Struct, frozen=True, gc=False):
    subscriber: str
    topic: str
    id: int
    wait: float = 0.0


class PutRequest(msgspec.Struct, frozen=True, gc=False):
    publisher: str
    topic: str
    count: int
    body: bytes


class SubscribeRequest(msgspec.Struct, frozen=True, gc=False):
    subscriber: str
    topic: str
    resume: bool = False


class UnsubscribeRequest(msgspec.Struct, frozen=True, gc=False):
    subscriber: str
    topic: str


Request = GetRequest | PutRequest | SubscribeRequest | UnsubscribeRequest


# For the server


def split(frames: Sequence[bytes]) -> tuple[tuple[bytes, ...], Sequence[bytes]]:
    """Split a message into its envelope, which the answer repeats, and the request. A REQ socket sends an
    empty frame first; behind a proxy, or with correlation ids, there are more frames before it. A DEALER may
    send none."""
    if frames and not frames[0]:
        return (b"",), frames[1:]
    for n, frame in enumerate(frames[:-1], 1):
        # A client's identity may be a letter that requests begin with.
        if not frame and (frames[0] not in _KINDS or frames[n].split(b" ", 1)[0] in _KINDS):
            return tuple(frames[:n]), frames[n:]
    return (), frames


def parse(frames: Sequence[bytes]) -> Request:
    """Parse a request. Raise Malformed if it is none."""
    if len(frames) == 1:
        text = frames[0]
        frames = text.split(b" ", 4) if text.startswith(b"p ") else text.split(b" ")
        _text(text)
    kind, count = frames[0] if frames else b"", len(frames)
    if kind == b"g" and count in (4, 5):
        wait = _seconds(frames[4]) if count == 5 else 0.0
        return GetRequest(_name(frames[1]), _name(frames[2]), _number(frames[3]), wait)
    if kind == b"p" and count == 5:
        return PutRequest(_name(frames[1]), _name(frames[2]), _number(frames[3]), frames[4])
    if kind == b"s" and (count == 3 or (count == 4 and frames[3] == _RESUME)):
        return SubscribeRequest(_name(frames[1]), _name(frames[2]), count == 4)
    if kind == b"u" and count == 3:
        return UnsubscribeRequest(_name(frames[1]), _name(frames[2]))
    raise Malformed("no request of the tables")


def answer(fields: Sequence[bytes], *, as_text: bool) -> Sequence[bytes]:
    """Return the frames of an answer."""
    if not as_text:
        return fields
    text = b" ".join(fields)
    if not text.isascii():
        text = text.decode(errors="replace").encode()
    return (text,)


# For the client


def encode(request: Request) -> list[bytes]:
    """Encode a request with one frame per field."""
    match request:
        case GetRequest(subscriber, topic, entry_id, wait):
            fields = [b"g", subscriber.encode(), topic.encode(), b"%d" % entry_id]
            return [*fields, _WAIT + f"{wait:.3f}".encode()] if wait else fields
        case PutRequest(publisher, topic, count, body):
            return [b"p", publisher.encode(), topic.encode(), b"%d" % count, body]
        case SubscribeRequest(subscriber, topic, resume):
            fields = [b"s", subscriber.encode(), topic.encode()]
            return [*fields, _RESUME] if resume else fields
        case UnsubscribeRequest(subscriber, topic):
            return [b"u", subscriber.encode(), topic.encode()]


# Fields


def _text(field: bytes) -> str:
    try:
        return field.decode()
    except UnicodeDecodeError:
        raise Malformed("not UTF-8") from None


def _name(field: bytes) -> str:
    if not field:
        raise Malformed("a name is missing")
    return _text(field)


def _number(field: bytes) -> int:
    if not field.isdigit():
        raise Malformed("not a number")
    return int(field) if len(field) <= _DIGITS else MAX_NUMBER


def _seconds(field: bytes) -> float:
    number = field.removeprefix(_WAIT)
    if number == field or not number.replace(b".", b"", 1).isdigit() or len(number) > _DIGITS:
        raise Malformed("not a time to wait")
    return float(number)
