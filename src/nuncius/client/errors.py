"""Exceptions that calls of the client raise. All are subclasses of NunciusError."""

from nuncius.wire.packets import ErrorCode


class NunciusError(Exception):
    """Base of all exceptions of the client."""


class InvalidInput(NunciusError):
    """A name, a number or a size is not allowed."""


class NotFound(NunciusError):
    """There is no such queue, topic, subscription or client."""


class SubscriptionEnded(NotFound):
    """A subscription cannot be read any more: it or its topic was deleted, or the node refuses it."""


class AlreadyExists(NunciusError):
    """The name is taken."""


class NotAllowed(NunciusError):
    """The client is read-only."""


class Refused(NunciusError):
    """The broker could not perform the operation; nothing was stored."""


class OutcomeUnknown(NunciusError):
    """The operation may or may not have been performed."""


class Timeout(OutcomeUnknown):
    """No answer or message arrived within the timeout of the call."""


class ConnectionLost(OutcomeUnknown):
    """The connection broke during a call that must not be repeated."""


class LeaseLost(NunciusError):
    """This client does not hold the message (any more). Unless it was settled before, it is redelivered."""


class CannotConnect(NunciusError):
    """No node could be reached."""


class Closed(NunciusError):
    """The client is closed, or was not opened."""


_BY_CODE: dict[int, type[NunciusError]] = {
    ErrorCode.INTERNAL: OutcomeUnknown,
    ErrorCode.PROTOCOL: InvalidInput,
    ErrorCode.INVALID: InvalidInput,
    ErrorCode.NOT_FOUND: NotFound,
    ErrorCode.EXISTS: AlreadyExists,
    ErrorCode.NOT_ALLOWED: NotAllowed,
    ErrorCode.UNAVAILABLE: Refused,
    ErrorCode.UNKNOWN: OutcomeUnknown,
    ErrorCode.FAILED: Refused,
    ErrorCode.CLOSING: ConnectionLost,
    ErrorCode.NOT_HELD: LeaseLost,
}


def is_temporary(error: NunciusError) -> bool:
    """Return True if a call that may be repeated may succeed later."""
    return isinstance(error, OutcomeUnknown | Refused | CannotConnect)


def from_packet(code: int, text: str) -> NunciusError:
    """Return the exception for an error packet."""
    return _BY_CODE.get(code, OutcomeUnknown)(text)
