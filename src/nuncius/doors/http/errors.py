"""Map errors to answers of the API under /v1: a status, a word for programs and a sentence for people."""

from typing import Literal

import msgspec

from nuncius.broker.errors import (
    AlreadyExists,
    BrokerError,
    CallFailed,
    InvalidInput,
    KeyReused,
    NotAllowed,
    NotFound,
    NotHeld,
    OutcomeUnknown,
    StoreError,
    TooLarge,
)
from nuncius.doors.http.connection.codings import UnknownCoding
from nuncius.doors.http.exchange import Headers

Word = Literal[
    "invalid",
    "refused",
    "not_allowed",
    "not_found",
    "method_not_allowed",
    "conflict",
    "key_reused",
    "too_large",
    "unsupported_media_type",
    "internal",
    "timeout",
    "unavailable",
    "outcome_unknown",
]


class Problem(msgspec.Struct, frozen=True):
    """An error: a word for programs and a sentence for people."""

    error: Word
    message: str


def problem(word: Word, message: str) -> bytes:
    """Return the body of an error answer."""
    return msgspec.json.encode(Problem(word, message))


class Failed(Exception):
    """An error answer of the API."""

    def __init__(self, status: int, word: Word, message: str, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status = status
        self.word: Word = word
        self.headers = headers


# The first match counts.
_STATUS: tuple[tuple[type[Exception], int, Word], ...] = (
    (TooLarge, 413, "too_large"),
    (UnknownCoding, 415, "unsupported_media_type"),
    (KeyReused, 422, "key_reused"),
    (InvalidInput, 400, "invalid"),
    (msgspec.MsgspecError, 400, "invalid"),
    (NotAllowed, 403, "not_allowed"),
    (NotFound, 404, "not_found"),
    (AlreadyExists, 409, "conflict"),
    (NotHeld, 409, "conflict"),
    (CallFailed, 400, "refused"),
    (OutcomeUnknown, 503, "outcome_unknown"),
    (StoreError, 503, "unavailable"),
)
EXPECTED: tuple[type[Exception], ...] = (Failed, BrokerError, StoreError, msgspec.MsgspecError)


def failed(error: Exception) -> Failed:
    """Return the answer to one of the EXPECTED errors."""
    if isinstance(error, Failed):
        return error
    for kind, status, word in _STATUS:
        if isinstance(error, kind):
            return Failed(status, word, str(error))
    raise error
