"""Map the broker's errors to those of the native protocol."""

import logging
import secrets

from nuncius.broker import errors
from nuncius.wire.packets import Error, ErrorCode

log = logging.getLogger(__name__)

_CODES: tuple[tuple[type[Exception], int], ...] = (
    (errors.InvalidInput, ErrorCode.INVALID),
    (errors.NotFound, ErrorCode.NOT_FOUND),
    (errors.AlreadyExists, ErrorCode.EXISTS),
    (errors.NotAllowed, ErrorCode.NOT_ALLOWED),
    (errors.NotHeld, ErrorCode.NOT_HELD),
    (errors.StoreUnavailable, ErrorCode.UNAVAILABLE),
    (errors.OutcomeUnknown, ErrorCode.UNKNOWN),
    (errors.CallFailed, ErrorCode.FAILED),
)


def error_packet(request: int, error: Exception) -> Error:
    for kind, code in _CODES:
        if isinstance(error, kind):
            return Error(request, code, str(error))
    number = secrets.token_hex(4)
    log.error("internal error", extra={"number": number}, exc_info=error)
    return Error(request, ErrorCode.INTERNAL, f"internal error {number}")
