"""Limits on input from clients, and the checks that enforce them.

PostgreSQL never refuses a batch for a value that passes here, so no message can fail others of its batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from nuncius.broker.errors import InvalidInput, TooLarge
from nuncius.limits import (
    MAX_HEADERS,
    MAX_KEY,
    headers_problem,
    int32_problem,
    key_problem,
    priority_problem,
    text_problem,
)
from nuncius.store.names import JOBS

NAME_LENGTH = 255
INT64 = 2**63 - 1
MAX_COUNT = 2**62  # with room for a batch, and for the difference of two
_headers_decoder = msgspec.json.Decoder(dict[str, str])


@dataclass(frozen=True, slots=True)
class Limits:
    max_body: int = 8 << 20
    max_key: int = MAX_KEY
    max_headers: int = MAX_HEADERS
    max_batch: int = 10_000
    max_partitions: int = 1000
    max_attempts: int = 10
    """Failed deliveries after which a message becomes a dead letter."""
    retry_delay: float = 2.0
    """Seconds from a failed delivery to the redelivery."""
    max_memory: int = 512 << 20
    """Bytes that clients may make a process keep: unanswered requests and unread answers."""
    greeting_seconds: float = 10.0
    """Seconds from the start of a connection to its first complete request."""
    progress_seconds: float = 60.0
    """Seconds without a byte in the middle of a request."""


def check_name(kind: str, name: str) -> None:
    if not name or len(name) > NAME_LENGTH:
        raise InvalidInput(f"the name of a {kind} has 1 to {NAME_LENGTH} characters")
    if not name.isprintable():
        raise InvalidInput(f"the name of a {kind} has no control characters")
    if name != name.strip():
        raise InvalidInput(f"the name of a {kind} does not begin or end with a blank")
    _check_text(f"the name of a {kind}", name)


def check_subscriber(name: str) -> None:
    """Refuse an invalid name, and the names of jobs."""
    check_name("subscriber", name)
    check_not_of_job(name)


def check_not_of_job(name: str) -> None:
    """Refuse the name of a job's subscription."""
    if name.startswith(JOBS):
        raise InvalidInput(f"names of subscribers that begin with {JOBS} are reserved for jobs")


def check_bodies(limits: Limits, bodies: Sequence[bytes]) -> int:
    """Return the total size of the bodies."""
    if not bodies:
        raise InvalidInput("there is nothing to send")
    if len(bodies) > limits.max_batch:
        raise InvalidInput(f"a batch has at most {limits.max_batch} messages")
    size = 0
    for body in bodies:
        if len(body) > limits.max_body:
            raise TooLarge(f"a message has at most {limits.max_body} bytes, not {len(body)}")
        size += len(body)
    return size


def check_keys(limits: Limits, keys: Sequence[str | None], count: int) -> None:
    if len(keys) != count:
        raise InvalidInput("there must be as many keys as messages")
    for key in keys:
        if key is not None and (problem := key_problem(key, limits.max_key)):
            raise InvalidInput(problem)


def check_headers(limits: Limits, headers: Sequence[str | None], count: int) -> None:
    """Refuse headers that are not JSON text of an object of strings."""
    if len(headers) != count:
        raise InvalidInput("there must be as many headers as messages")
    for text in headers:
        if text is not None:
            if problem := headers_problem(text, limits.max_headers):
                raise InvalidInput(problem)
            decode_headers(text)


def decode_headers(text: str) -> dict[str, str]:
    try:
        headers = _headers_decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidInput(f"headers are a JSON object of strings ({error})") from None
    for name, value in headers.items():
        _check_text("a header", name)
        _check_text("a header", value)
    return headers


def encode_headers(headers: Mapping[str, str]) -> str | None:
    return msgspec.json.encode(dict(headers)).decode() if headers else None


def check_priority(priority: int) -> None:
    if problem := priority_problem(priority):
        raise InvalidInput(problem)


def check_int32(what: str, value: int) -> None:
    if problem := int32_problem(what, value):
        raise InvalidInput(problem)


def check_int64(what: str, value: int) -> None:
    if not -INT64 <= value <= INT64:
        raise InvalidInput(f"{what} is at most {INT64}, not {value}")


def check_count(count: int) -> None:
    if not 1 <= count <= MAX_COUNT:
        raise InvalidInput(f"a publisher counts from 1 to {MAX_COUNT}, not {count}")


def _check_text(what: str, text: str) -> None:
    if problem := text_problem(what, text):
        raise InvalidInput(problem)
