"""Map errors to ERROR frames: a short text, after which the connection ends."""

import logging
import secrets
from collections.abc import Mapping

from nuncius.broker import errors
from nuncius.doors.stomp.frames.codec import Frame, encode
from nuncius.doors.stomp.frames.versions import StompError, Version

log = logging.getLogger(__name__)

_FOR_THE_CLIENT = (errors.BrokerError, errors.StoreError, StompError)
_MAX_SHOWN = 1000


class StompRefusal(errors.BrokerError):
    """A frame that cannot be carried out."""


def explain(error: Exception) -> str:
    """Return the error text for the client. An internal error is shown as a number that is also in the
    log."""
    if isinstance(error, _FOR_THE_CLIENT):
        return str(error)[:_MAX_SHOWN]
    number = secrets.token_hex(4)
    log.error("internal error", extra={"number": number}, exc_info=error)
    return f"internal error {number}"


def error_frame(
    text: str, version: Version, frame: Frame | None = None, more: Mapping[str, str] | None = None
) -> bytes:
    """Return an ERROR; `frame` is the frame that caused it."""
    headers = {"message": text, **(more or {})}
    body = text
    if frame is not None:
        receipt = frame.headers.get("receipt")
        if receipt is not None:
            headers["receipt-id"] = receipt
        body = f"{text}\n\nThe frame was {frame.command[:100]!r}."
    if version is not Version.V10:
        headers["content-type"] = "text/plain"
    encoded = body.encode()
    headers["content-length"] = str(len(encoded))
    return encode("ERROR", headers, encoded, version)
