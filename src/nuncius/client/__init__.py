"""The Python client: `Client` for synchronous programs, `AsyncClient` for asyncio, with the same methods."""

from nuncius.client.aio import AsyncClient
from nuncius.client.blocking.client import Client
from nuncius.client.blocking.lease import Lease
from nuncius.client.blocking.subscription import Subscription
from nuncius.client.errors import (
    AlreadyExists,
    CannotConnect,
    Closed,
    ConnectionLost,
    InvalidInput,
    LeaseLost,
    NotAllowed,
    NotFound,
    NunciusError,
    OutcomeUnknown,
    Refused,
    SubscriptionEnded,
    Timeout,
)
from nuncius.client.lease import AsyncLease
from nuncius.client.model import Entry, Message, PutReceipt, Receipt
from nuncius.client.subscription import AsyncSubscription

__all__ = [
    "AlreadyExists",
    "AsyncClient",
    "AsyncLease",
    "AsyncSubscription",
    "CannotConnect",
    "Client",
    "Closed",
    "ConnectionLost",
    "Entry",
    "InvalidInput",
    "Lease",
    "LeaseLost",
    "Message",
    "NotAllowed",
    "NotFound",
    "NunciusError",
    "OutcomeUnknown",
    "PutReceipt",
    "Receipt",
    "Refused",
    "Subscription",
    "SubscriptionEnded",
    "Timeout",
]
