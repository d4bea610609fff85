"""Data classes of the domain, for the broker's callers, in one place."""

from nuncius.broker.clients import FULL, READ_ONLY, Client
from nuncius.broker.delivery.by_id import IdRequest
from nuncius.broker.delivery.cursor import Cursor
from nuncius.broker.delivery.push.feed import Feed
from nuncius.broker.delivery.push.parts import PushedSlice
from nuncius.broker.delivery.subscriptions import Subscription, SubscriptionInfo
from nuncius.broker.delivery.tails import TailChunk, TailSlice
from nuncius.broker.queues.queue import Queue, QueueInfo
from nuncius.broker.queues.waiter import Waiter
from nuncius.broker.topics.topic import PartitionInfo, Publisher, Retention, Topic, TopicInfo
from nuncius.broker.transactions import Transaction
from nuncius.store.calls.fetching import FetchedEntries
from nuncius.store.calls.publishing import Placed
from nuncius.store.calls.putting import Letter, Stored
from nuncius.store.calls.sequences import FoundEntry, Turn
from nuncius.store.calls.taking import BY_PRIORITY, BY_TIME, Leased, Message
from nuncius.store.pressure import Pressure

__all__ = [
    "BY_PRIORITY",
    "BY_TIME",
    "FULL",
    "READ_ONLY",
    "Client",
    "Cursor",
    "Feed",
    "FetchedEntries",
    "FoundEntry",
    "IdRequest",
    "Leased",
    "Letter",
    "Message",
    "PartitionInfo",
    "Placed",
    "Pressure",
    "Publisher",
    "PushedSlice",
    "Queue",
    "QueueInfo",
    "Retention",
    "Stored",
    "Subscription",
    "SubscriptionInfo",
    "TailChunk",
    "TailSlice",
    "Topic",
    "TopicInfo",
    "Transaction",
    "Turn",
    "Waiter",
]
