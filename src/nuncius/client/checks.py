"""Checks before sending. Messages of one turn travel in one packet, and a node refuses a packet as a whole;
so an invalid message must not get into one with valid messages."""

import math
from collections.abc import Iterable, Mapping

import msgspec

from nuncius.client.errors import InvalidInput

MAX_KEY = 1024  # characters
MAX_HEADERS = 64 << 10  # characters of their JSON text
MAX_NUMBER = 2**31 - 1
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
    if len(key) > MAX_KEY:
        raise InvalidInput(f"a key has at most {MAX_KEY} characters")
    _check_text("a key", key)


def headers_text(headers: Mapping[str, str] | None) -> str | None:
    """Encode headers for sending."""
    if not headers:
        return None
    given: Iterable[tuple[object, object]] = headers.items()
    for name, value in given:
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidInput("headers are strings, and so are their names")
        _check_text("a header", name)
        _check_text("a header", value)
    text = _encode(dict(headers)).decode()
    if len(text) > MAX_HEADERS:
        raise InvalidInput(f"headers have at most {MAX_HEADERS} characters")
    return text


def check_message(priority: int, receiver: int, context: int) -> None:
    if not 1 <= priority <= 10:
        raise InvalidInput(f"a priority is between 1 and 10, not {priority}")
    for what, number in (("a receiver", receiver), ("a context", context)):
        if not 0 <= number <= MAX_NUMBER:
            raise InvalidInput(f"{what} is between 0 and {MAX_NUMBER}, not {number}")


def _check_text(what: str, text: str) -> None:
    if "\0" in text:
        raise InvalidInput(f"{what} has no NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} is valid Unicode") from None
