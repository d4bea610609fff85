"""What a caller of the broker may get instead of an answer. Doors map each to their protocol in one place.

The store's own errors (unavailable, outcome unknown) belong to the family: they pass through unchanged.
"""

from nuncius.store.errors import CallFailed, OutcomeUnknown, StoreError, StoreUnavailable


class BrokerError(Exception):
    """Base of what the broker raises itself."""


class InvalidInput(BrokerError):
    """A name, a number or a size is not allowed."""


class TooLarge(InvalidInput):
    """More bytes than allowed."""


class NotFound(BrokerError):
    """Base of "there is no such thing"."""


class NoSuchClient(NotFound):
    pass


class NoSuchQueue(NotFound):
    pass


class NoSuchTopic(NotFound):
    pass


class NoSuchSubscription(NotFound):
    pass


class TakenOver(BrokerError):
    """A durable subscription goes on elsewhere, because its subscriber has come there."""


class AlreadyExists(BrokerError):
    """The name is taken."""


class NotAllowed(BrokerError):
    """The client's mode does not permit this."""


class KeyReused(BrokerError):
    """A key that stands for one request was sent with another."""


class NotHeld(BrokerError):
    """A lease is not the caller's, or not any more. Unless it was settled, its message comes again."""


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
