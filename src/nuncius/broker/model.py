"""What the broker's callers handle: the data of the domain, from wherever it is made."""

from nuncius.broker.clients import FULL, READ_ONLY, Client
from nuncius.broker.feed import Feed
from nuncius.broker.feed_parts import Batch
from nuncius.broker.pubsub import Get
from nuncius.broker.queue import Queue, QueueInfo
from nuncius.broker.subscriptions import Reader, Subscription, SubscriptionInfo
from nuncius.broker.tails import Chunk, Slice
from nuncius.broker.topic import PartitionInfo, Publisher, Retention, Topic, TopicInfo
from nuncius.broker.transactions import Transaction
from nuncius.broker.waiter import Waiter
from nuncius.store.fetching import Entries
from nuncius.store.pressure import Pressure
from nuncius.store.publishing import Placed
from nuncius.store.putting import Letter, Stored
from nuncius.store.sequences import Found, Turn
from nuncius.store.taking import BY_PRIORITY, BY_TIME, Leased, Message

__all__ = [
    "BY_PRIORITY",
    "BY_TIME",
    "FULL",
    "READ_ONLY",
    "Batch",
    "Chunk",
    "Client",
    "Entries",
    "Feed",
    "Found",
    "Get",
    "Leased",
    "Letter",
    "Message",
    "PartitionInfo",
    "Placed",
    "Pressure",
    "Publisher",
    "Queue",
    "QueueInfo",
    "Reader",
    "Retention",
    "Slice",
    "Stored",
    "Subscription",
    "SubscriptionInfo",
    "Topic",
    "TopicInfo",
    "Transaction",
    "Turn",
    "Waiter",
]
