"""Subscriptions: durable positions in a topic, and readers that start there."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime

from nuncius.broker.background.signals import Signals
from nuncius.broker.caller import NODE, Caller
from nuncius.broker.delivery.tails import TailChunk, Tails, TailSlice
from nuncius.broker.errors import InvalidInput, NoSuchSubscription, NoSuchTopic
from nuncius.broker.limits import check_name, check_not_of_job, check_subscriber
from nuncius.broker.topics.topic import Topic
from nuncius.broker.topics.topics import Topics
from nuncius.store.store import Store

AT_ONCE = 32  # partitions that a reader fetches together: their entries are in memory at the same time

# For a partition and an offset: the next offset that a look must leave out, if any.
Bound = Callable[[int, int], int | None]


@dataclass(frozen=True, slots=True)
class Subscription:
    subscription_id: int
    topic: Topic
    subscriber: str
    created: bool  # by this call, rather than found


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    topic: str
    subscriber: str
    holds_retention: bool
    created_at: datetime
    lag: int
    confirmed_at: datetime | None


def _ignore(caller: Caller, entries: int) -> None:
    """Do nothing: deliveries are not counted."""


class Subscriptions:
    def __init__(self, store: Store, topics: Topics, tails: Tails, signals: Signals) -> None:
        self._store = store
        self._topics = topics
        self._tails = tails
        self._signals = signals
        self.on_delivery: Callable[[Caller, int], None] = _ignore
        """Called with the caller and the number of delivered entries."""

    async def subscribe(
        self,
        topic: str,
        subscriber: str,
        *,
        start: str = "latest",
        holds_retention: bool = False,
        holder: int | None = None,
    ) -> Subscription:
        """Subscribe, or find the existing subscription. `start`: 'latest' or 'earliest'. With a holder the
        subscription ends with that node, unless it was durable before."""
        check_subscriber(subscriber)
        check_name("topic", topic)
        if start not in ("latest", "earliest"):
            raise InvalidInput(f"start at 'latest' or 'earliest', not at {start!r}")
        rows = await self._store.query(
            "select subscription_id, created from nuncius.subscribe($1, $2, $3, $4, $5)",
            topic,
            subscriber,
            start,
            holds_retention,
            holder,
        )
        found = await self._topics.existing(topic)
        return Subscription(rows[0][0], found, subscriber, rows[0][1])

    async def find(self, topic: str, subscriber: str) -> Subscription:
        """Find a subscription to read or to seek it. Refuse those of jobs."""
        check_not_of_job(subscriber)
        return await self.look_up(topic, subscriber)

    async def look_up(self, topic: str, subscriber: str) -> Subscription:
        """Find a subscription, to show it."""
        rows = await self._store.query(
            "select subscription_id from nuncius.subscriptions join nuncius.topics using (topic_id)"
            " where topic_name = $1 and subscriber_name = $2",
            topic,
            subscriber,
        )
        if not rows:
            raise NoSuchSubscription(f"{subscriber!r} is not subscribed to {topic!r}")
        return Subscription(rows[0][0], await self._topics.existing(topic), subscriber, False)

    async def unsubscribe(self, topic: str, subscriber: str) -> None:
        rows = await self._store.execute("select nuncius.unsubscribe($1, $2)", topic, subscriber)
        if not rows[0][0]:
            raise NoSuchSubscription(f"{subscriber!r} is not subscribed to {topic!r}")

    async def list(
        self, topic: str | None = None, subscriber: str | None = None
    ) -> Sequence[SubscriptionInfo]:
        rows = await self._store.query(
            "select topic_name, subscriber_name, holds_retention, created_at, lag, confirmed_at"
            " from nuncius.list_subscriptions($1, $2)",
            topic,
            subscriber,
        )
        return [SubscriptionInfo(*row) for row in rows]

    async def reader(self, subscription: Subscription) -> "Reader":
        """Return a reader that begins at the confirmed positions."""
        reader = Reader(self._store, self._tails, self._signals, subscription, self.on_delivery)
        await reader.find_place()
        return reader


class Reader:
    """Reader of a topic's partitions in turn, from a subscription's positions on. Reading moves only the
    reader; confirming moves the subscription."""

    def __init__(
        self,
        store: Store,
        tails: Tails,
        signals: Signals,
        subscription: Subscription,
        on_delivery: Callable[[Caller, int], None],
    ) -> None:
        self._store = store
        self._tails = tails
        self._signals = signals
        self._on_delivery = on_delivery
        self.subscription = subscription
        self.places: dict[int, tuple[int, int]] = {}  # partition: its id, the next offset
        self._empty: dict[int, int] = {}  # partition: the topic's version at which it was empty
        self._catalogue = 0

    async def find_place(self) -> None:
        """Look up the positions of partitions that are new to this reader."""
        self._catalogue = self._signals.catalogue
        rows = await self._store.query(
            "select partition, partition_id, position from nuncius.positions_of($1)",
            [self.subscription.subscription_id],
        )
        if not rows:
            raise await self._why_gone()
        for partition, partition_id, position in rows:
            self.places.setdefault(partition, (partition_id, position))

    async def _why_gone(self) -> NoSuchSubscription | NoSuchTopic:
        topic = self.subscription.topic
        exists = "select exists (select from nuncius.topics where topic_id = $1)"
        if (await self._store.query(exists, topic.topic_id))[0][0]:
            return NoSuchSubscription(
                f"{self.subscription.subscriber!r} is not subscribed to {topic.name!r} any more"
            )
        return NoSuchTopic(f"topic {topic.name!r} was deleted")

    async def next(
        self, limit: int, caller: Caller = NODE, gate: AbstractAsyncContextManager[None] | None = None
    ) -> TailSlice:
        """Return the next entries, of one partition. Wait until there are some. Each look goes through the
        gate, if there is one."""
        while True:
            version = self._signals.version(self.subscription.topic.topic_id)
            async with gate or nullcontext():
                found = await self.look(limit, caller)
            if found is not None:
                return found
            await self._signals.wait(self.subscription.topic.topic_id, version, None)

    async def look(self, limit: int, caller: Caller = NODE, bound: Bound | None = None) -> TailSlice | None:
        """Return the next entries, of one partition, or None. Entries that the bound excludes are fetched,
        too, for `take_fetched`."""
        if self._catalogue != self._signals.catalogue:
            await self.find_place()
        version = self._version
        line = {
            partition: place
            for partition, place in self.places.items()
            if self._empty.get(partition) != version
        }
        for partition, (partition_id, position) in line.items():
            known = self._tails.known(partition_id, position)
            if known is None:
                break
            await asyncio.sleep(0)  # let other tasks run: reading from memory may go on for long
            found = self._move(partition, *known, limit, caller, bound)
            if found is not None:
                return found
        partitions = list(line)
        for start in range(0, len(partitions), AT_ONCE):
            some = partitions[start : start + AT_ONCE]
            fetching = [self._tails.fetch(*line[partition], version, caller) for partition in some]
            chunks = [await fetching[0]] if len(fetching) == 1 else await asyncio.gather(*fetching)
            found = None
            for partition, chunk in zip(some, chunks, strict=True):
                if chunk is None:
                    self._empty[partition] = version
                elif not isinstance(chunk, tuple):
                    raise NoSuchTopic(f"topic {self.subscription.topic.name!r} was deleted")
                elif found is None:
                    found = self._move(partition, *chunk, limit, caller, bound)
            if found is not None:
                return found
        return None

    def take_fetched(self, partition: int, end: int, limit: int, caller: Caller) -> TailSlice | None:
        """Return the next entries of this partition below the offset `end`, as far as they are fetched."""
        partition_id, position = self.places[partition]
        known = self._tails.known(partition_id, position)
        if known is None:
            return None
        return self._move(partition, *known, min(limit, end - position), caller, None)

    def fetched_to(self, partition: int) -> int:
        """Return the offset to which this partition is fetched without a gap, from the reader's position."""
        partition_id, position = self.places[partition]
        known = self._tails.known(partition_id, position)
        return position if known is None else known[0].entries.next_offset

    def has_found_nothing(self, partition: int) -> bool:
        """Return True if the last look found no entries here, and the topic has no new ones since."""
        return self._empty.get(partition) == self._version

    @property
    def _version(self) -> int:
        return self._signals.version(self.subscription.topic.topic_id)

    def _move(
        self, partition: int, chunk: TailChunk, start: int, limit: int, caller: Caller, bound: Bound | None
    ) -> TailSlice | None:
        partition_id, _ = self.places[partition]
        first = chunk.entries.first_offset
        end = min(start + limit, len(chunk.entries.bodies))
        excluded = None if bound is None else bound(partition, first + start)
        if excluded is not None and excluded < first + end:
            end = excluded - first
            if end == start:
                self.places[partition] = (partition_id, excluded)  # retention may have passed what was before
                return None
        found = TailSlice(partition, chunk, start, end)
        self._on_delivery(caller, found.end - found.start)
        # To the back of the line, so that a busy partition does not starve the others.
        del self.places[partition]
        self.places[partition] = (partition_id, found.next_offset)
        return found
