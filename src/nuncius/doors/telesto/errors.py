"""Map the broker's errors to those of Telesto: a type, and in the deployed dialect a text."""

import logging
import secrets

from nuncius.broker import errors
from nuncius.doors.telesto.codec import DoesNotFit
from nuncius.doors.telesto.table import CreateQueue, Error, ErrorType, RegisterClient, Request

log = logging.getLogger(__name__)

MAX_DETAILS = 500  # characters: in UTF-8 far below what the smallest framing can carry


class Refusal(Exception):
    """A refusal without a matching broker error, such as an empty list."""

    def __init__(self, error_type: ErrorType, details: str) -> None:
        super().__init__(details)
        self.error_type = error_type


# IO_ERROR promises that nothing was done, so that a client may try again; INTERNAL_ERROR promises nothing.
_TYPES: tuple[tuple[type[Exception], ErrorType], ...] = (
    (errors.InvalidInput, ErrorType.REQUIRED_PARAMETER_MISSING),
    (errors.NoSuchClient, ErrorType.CLIENT_NOT_EXISTING),
    (errors.NoSuchQueue, ErrorType.QUEUE_NOT_EXISTING),
    (errors.AlreadyExists, ErrorType.UNIQUE_CONSTRAINT),
    (errors.NotAllowed, ErrorType.CLIENT_MODE_PERMISSION_VIOLATION),
    (errors.StoreUnavailable, ErrorType.IO_ERROR),
    (errors.OutcomeUnknown, ErrorType.INTERNAL_ERROR),
    (errors.CallFailed, ErrorType.INTERNAL_ERROR),
    (DoesNotFit, ErrorType.INTERNAL_ERROR),
)
_NOT_UNIQUE: dict[type[Request], ErrorType] = {
    RegisterClient: ErrorType.CLIENT_NAME_NOT_UNIQUE,
    CreateQueue: ErrorType.QUEUE_NAME_NOT_UNIQUE,
}


def error_packet(request: Request, error: Exception) -> Error:
    """Return the answer to a request that ended with this error."""
    if isinstance(error, Refusal):
        return refusal(request.packet_id, error.error_type, str(error))
    if isinstance(error, errors.AlreadyExists) and type(request) in _NOT_UNIQUE:
        return refusal(request.packet_id, _NOT_UNIQUE[type(request)], str(error))
    for kind, error_type in _TYPES:
        if isinstance(error, kind):
            return refusal(request.packet_id, error_type, str(error))
    number = secrets.token_hex(4)
    log.error("internal error", extra={"number": number}, exc_info=error)
    return refusal(request.packet_id, ErrorType.INTERNAL_ERROR, f"internal error {number}")


def refusal(packet_id: int, error_type: ErrorType, details: str) -> Error:
    if len(details) > MAX_DETAILS:
        details = details[: MAX_DETAILS - 3] + "..."
    return Error(packet_id, error_type, details)
