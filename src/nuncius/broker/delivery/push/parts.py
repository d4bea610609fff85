"""The pushed entries, the settings and the services of a feed."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from nuncius.broker.caller import Caller
from nuncius.broker.delivery.push.ordered_feeds import OrderedFeeds
from nuncius.broker.delivery.tails import Tails, TailSlice
from nuncius.store.calls.acknowledging import AcknowledgeCall, DeliverCall
from nuncius.store.combiner.combiner import Combiner
from nuncius.store.store import Store


class PushedSlice(TailSlice, frozen=True, gc=False):
    """Entries that are pushed. `attempts`: failed deliveries of this (single) entry. Offsets below
    `redelivered_to` may have been delivered before."""

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
    deliveries: Combiner[DeliverCall]
    acknowledgements: Combiner[AcknowledgeCall]
    retry_delay: float
