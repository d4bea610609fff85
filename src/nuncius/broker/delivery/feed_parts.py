"""The batch, the settings and the services of a feed."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import msgspec

from nuncius.broker.background.signals import Signals
from nuncius.broker.caller import Caller
from nuncius.broker.delivery.ordered_feeds import OrderedFeeds
from nuncius.broker.delivery.tails import TailChunk, Tails
from nuncius.store.calls.acknowledging import AcknowledgeCall, DeliverCall
from nuncius.store.combiner.combiner import Combiner
from nuncius.store.store import Store

KNOWN = (
    "select p.partition, coalesce(d.delivered_to, 0) from nuncius.subscriptions s"
    " join nuncius.partitions p using (topic_id)"
    " left join lateral (select max(d.delivered_to) as delivered_to from nuncius.deliveries d"
    "  where d.subscription_id = s.subscription_id and d.partition_id = p.partition_id) d on true"
    " where s.subscription_id = $1"
)
FAILED = (
    "select p.partition, f.entry_offset, f.attempts,"
    " greatest(0, date_part('epoch', f.due_at - clock_timestamp()))::float8"
    " from nuncius.failures f join nuncius.partitions p using (partition_id) where f.subscription_id = $1"
)
ENDS = "select partition, nuncius.next_offset(partition_id) from nuncius.partitions where topic_id = $1"


class PushedSlice(msgspec.Struct, frozen=True, gc=False):
    """Entries [start:end] of a chunk. `attempts`: failed deliveries of this (single) entry. Offsets below
    `redelivered_to` may have been delivered before."""

    partition: int
    chunk: TailChunk
    start: int
    end: int
    attempts: int
    redelivered_to: int


@dataclass(frozen=True, slots=True)
class FeedSettings:
    durable: bool
    acknowledged: bool
    prefetch: int
    gate: AbstractAsyncContextManager[None] | None
    caller: Caller
    together: OrderedFeeds
    """All feeds of the same caller."""


@dataclass(frozen=True, slots=True)
class FeedServices:
    """Services that every feed of a node uses."""

    store: Store
    tails: Tails
    signals: Signals
    deliveries: Combiner[DeliverCall]
    acknowledgements: Combiner[AcknowledgeCall]
    retry_delay: float
