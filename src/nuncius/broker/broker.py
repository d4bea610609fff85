"""The facade that doors call."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from nuncius import __version__
from nuncius.broker.background.actors import Actors
from nuncius.broker.background.duties import Duties
from nuncius.broker.background.listener import Listener
from nuncius.broker.background.siblings import Siblings
from nuncius.broker.background.signals import Signals
from nuncius.broker.caller import NODE, Caller
from nuncius.broker.clients import Clients
from nuncius.broker.delivery.consuming import Consuming
from nuncius.broker.delivery.positions import Positions
from nuncius.broker.delivery.pubsub import PubSub
from nuncius.broker.delivery.push.feeds import Feeds
from nuncius.broker.delivery.shared import Groups
from nuncius.broker.delivery.subscriptions import Subscriptions
from nuncius.broker.delivery.tails import Tails
from nuncius.broker.limits import Limits
from nuncius.broker.observe.consumers import Consumers
from nuncius.broker.observe.counters import ACKED, DELIVERED, PUT, Counters
from nuncius.broker.observe.counters_model import Counts
from nuncius.broker.queues.queues import Queues
from nuncius.broker.queues.timed_leases import TimedLeases
from nuncius.broker.topics.publishers import Publishers
from nuncius.broker.topics.topics import Topics
from nuncius.broker.transactions import Transaction, TransactionRunner
from nuncius.store.connector import SILENCE_SECONDS
from nuncius.store.pressure import Pressure
from nuncius.store.queries import query
from nuncius.store.store import Store

FACTS = query("store", "facts")
FAILURES_BY_SUBSCRIBER = query("store", "failures_by_subscriber")


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed delivery to a subscriber of a topic or to a consumer of a queue."""

    destination: str
    subscriber: str | None
    partition: int | None
    id: int
    attempts: int
    last_failure: datetime
    due_at: datetime | None
    reason: str | None


class Broker:
    """All operations that a node offers to clients, on one store.

    Methods that carry messages take a callback (`..._soon`), so they need no task; all others are awaited.
    """

    def __init__(
        self,
        dsn: str,
        *,
        limits: Limits | None = None,
        patience: float = 30.0,
        silence: float = SILENCE_SECONDS,
        onlooker: bool = False,
    ) -> None:
        """Create a broker. An onlooker is not a node: it has no duties and gets no notifications."""
        self.limits = limits or Limits()
        self._onlooker = onlooker
        self._store = Store(dsn, patience=patience, silence=silence, max_memory=self.limits.max_memory)
        self.signals = Signals()
        self.consumers = Consumers()
        self.counters = Counters()
        self.counters.attach(self._store)
        self.siblings = Siblings()
        self.siblings.answer("counts", self._count)

    @property
    def pressure(self) -> Pressure:
        """Return the memory that clients use. Doors stop reading when it is high."""
        return self._store.pressure

    @property
    def store(self) -> Store:
        return self._store

    @property
    def holder(self) -> int:
        """Return the number under which this node holds leases. The node locks it as long as it lives."""
        return self._listener.holder

    @property
    def catalogue(self) -> int:
        """Return a version that rises when topics, partitions or subscriptions appear, end or move."""
        return self.signals.catalogue

    async def start(self) -> None:
        store, signals = self._store, self.signals
        await store.open()
        self._listener = Listener(store, signals, deaf=self._onlooker)
        self._listener.on_catalogue = self._catalogue_changed
        self.clients = Clients(store)
        self.publishers = Publishers(store)
        self.topics = Topics(store, signals, self._listener, self.limits)
        self._tails = Tails(self.topics, signals)
        self._tails.on_delivery = partial(self.counters.count, DELIVERED)
        self.subscriptions = Subscriptions(store, self.topics, self._tails)
        self.positions = Positions(store)
        self.queues = Queues(store, self._listener, self.limits)
        self.queues.on_put = partial(self.counters.count, PUT)
        self.leases = self.queues.leases
        self.timed_leases = TimedLeases(store, self.queues, self._listener, self.limits)
        self.timed_leases.on_settled = partial(self.counters.count, ACKED)
        self.feeds = Feeds(
            store, self.subscriptions, self._tails, self.topics.order, self._listener, self.limits
        )
        self.feeds.consumers = self.consumers
        self._transactions = TransactionRunner(store, self.topics, self.queues, self.feeds)
        self.pubsub = PubSub(store, self.subscriptions, signals, self._listener, self.limits)
        self.actors = Actors(store)
        self.consuming = Consuming(store, self.topics, self._tails, self.actors, self.positions)
        self.groups = Groups(store, self.topics, self._tails, self._listener, self.limits)
        self.duties = Duties(store, self.leases)
        self.actors.take_on(self.duties)
        self.groups.take_on(self.duties)
        self.counters.take_on(self.duties)
        await self._listener.start()
        if not self._onlooker:
            self.duties.start()

    async def close(self) -> None:
        """Answer all accepted requests, then close the store."""
        await self.feeds.close()
        await self.consuming.drain()
        await self._transactions.drain()
        await self._store.drain()
        await self.duties.close()
        await self._listener.close()
        await self._store.close()

    async def __aenter__(self) -> "Broker":
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def transaction(self, *, caller: Caller = NODE) -> Transaction:
        """Return a new transaction. It begins in the store when it is committed."""
        return Transaction(self._transactions, caller)

    async def failures(self, limit: int = 1000) -> list[Failure]:
        """List failed deliveries, the latest first."""
        rows = await self._store.call("list_failures", limit)
        return [Failure(*row) for row in rows]

    async def status(self) -> dict[str, object]:
        """Return facts about node and store, and failed deliveries by destination and subscriber."""
        failures = await self._store.query(FAILURES_BY_SUBSCRIBER)
        (row,) = await self._store.query(FACTS)
        return {
            "nodes": self._listener.nodes,
            "version": __version__,
            **await self._counts(),
            **row,
            "failures": [dict(each) for each in failures],
            "inactive": [
                {"kind": each.kind, "id": each.actor_id, "last_active": each.last_active}
                for each in await self.actors.health(only_inactive=True, limit=100)
            ],
        }

    def _count(self) -> Counts:
        return Counts(self.pressure.level, self.counters.connections, self.counters.by_kind())

    async def _counts(self) -> dict[str, object]:
        """Sum the counts of all workers. If there are several workers, tell how many answered."""
        heard = await self.siblings.ask("counts", kind=Counts)
        connections: Counter[str] = Counter()
        messages: Counter[str] = Counter()
        for each in heard.said.values():
            connections.update(each.connections)
            messages.update(each.messages)
        workers = {"workers": {"answering": len(heard.said), "silent": len(heard.missing)}}
        return {
            **(workers if self.siblings.are_several else {}),
            "accepted_bytes": sum(each.accepted_bytes for each in heard.said.values()),
            "connections": connections,
            "messages": messages,
        }

    def _catalogue_changed(self) -> None:
        self.topics.names.forget_all()
        self.queues.names.forget_all()
        self._tails.forget()
        self.actors.forget()
        self.consuming.look_again()
        self.signals.raise_for_catalogue()
