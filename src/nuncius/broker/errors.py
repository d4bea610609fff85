"""Errors of the broker. Each door maps them to its protocol in one place.

The store's own errors (unavailable, outcome unknown) pass through unchanged.
"""

from nuncius.store.errors import CallFailed, OutcomeUnknown, StoreError, StoreUnavailable


class BrokerError(Exception):
    """Base of the errors that the broker raises itself."""


class InvalidInput(BrokerError):
    """A name, a number or a size is not allowed."""


class TooLarge(InvalidInput):
    """More bytes than allowed."""


class NotFound(BrokerError):
    """Base of the errors for things that do not exist."""


class NoSuchClient(NotFound):
    pass


class NoSuchQueue(NotFound):
    pass


class NoSuchTopic(NotFound):
    pass


class NoSuchSubscription(NotFound):
    pass


class TakenOver(BrokerError):
    """A durable subscription is read elsewhere now: its subscriber has connected there."""


class AlreadyExists(BrokerError):
    """The name is taken."""


class NotAllowed(BrokerError):
    """The client's mode does not permit this."""


class KeyReused(BrokerError):
    """An idempotency key was sent before, with another request."""


class NotHeld(BrokerError):
    """The caller does not hold the lease (any more). Unless it was settled, its message is redelivered."""


__all__ = [
    "AlreadyExists",
    "BrokerError",
    "CallFailed",
    "InvalidInput",
    "KeyReused",
    "NoSuchClient",
    "NoSuchQueue",
    "NoSuchSubscription",
    "NoSuchTopic",
    "NotAllowed",
    "NotFound",
    "NotHeld",
    "OutcomeUnknown",
    "StoreError",
    "StoreUnavailable",
    "TakenOver",
    "TooLarge",
]
