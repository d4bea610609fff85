"""Checks before sending. Messages of one turn travel in one packet, and a node refuses a packet as a whole;
so an invalid message must not get into one with valid messages."""

import math
from collections.abc import Iterable, Mapping

import msgspec

from nuncius import limits
from nuncius.client.errors import InvalidInput

MAX_WAIT = 3600.0  # seconds; a node waits no longer for one request
_encode = msgspec.json.Encoder().encode


def as_bytes(body: object) -> bytes:
    """Encode a body for sending."""
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError:
            raise InvalidInput("a text is valid Unicode") from None
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise InvalidInput(f"a body is bytes or a text, not {type(body).__name__}")


def check_wait(seconds: float) -> None:
    if not 0 <= seconds <= MAX_WAIT:
        raise InvalidInput(f"wait for 0 to {MAX_WAIT:g} seconds, not for {seconds:g}")


def milliseconds(seconds: float) -> int:
    """Convert a time to wait to milliseconds, rounded up so that a short wait does not become none."""
    check_wait(seconds)
    return math.ceil(seconds * 1000)


def check_key(key: str) -> None:
    _refuse(limits.key_problem(key))


def headers_text(headers: Mapping[str, str] | None) -> str | None:
    """Encode headers for sending."""
    if not headers:
        return None
    given: Iterable[tuple[object, object]] = headers.items()
    for name, value in given:
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidInput("headers are strings, and so are their names")
        _refuse(limits.text_problem("a header", name) or limits.text_problem("a header", value))
    text = _encode(dict(headers)).decode()
    _refuse(limits.headers_problem(text))
    return text


def check_message(priority: int, receiver: int, context: int) -> None:
    _refuse(
        limits.priority_problem(priority)
        or limits.int32_problem("a receiver", receiver)
        or limits.int32_problem("a context", context)
    )


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise InvalidInput(problem)
