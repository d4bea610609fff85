"""Subscriptions: a durable place in a topic, and readers that go on from it."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nuncius.broker.errors import InvalidInput, NoSuchSubscription, NoSuchTopic
from nuncius.broker.limits import check_name
from nuncius.broker.signals import Signals
from nuncius.broker.topics import Topic, Topics
from nuncius.store.confirming import NO_SUBSCRIPTION, NOT_PUBLISHED, ConfirmCall, confirm
from nuncius.store.fetching import GONE, Entries
from nuncius.store.store import Store


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


class Subscriptions:
    def __init__(self, store: Store, topics: Topics, signals: Signals) -> None:
        self._store = store
        self._topics = topics
        self._signals = signals
        self._confirming = store.combiner("confirm", confirm)

    async def subscribe(
        self, topic: str, subscriber: str, *, start: str = "latest", holds_retention: bool = False
    ) -> Subscription:
        """Subscribes, or finds the subscription there is. `start`: 'latest' or 'earliest'."""
        check_name("subscriber", subscriber)
        check_name("topic", topic)
        if start not in ("latest", "earliest"):
            raise InvalidInput(f"start at 'latest' or 'earliest', not at {start!r}")
        rows = await self._store.query(
            "select subscription_id, created from nuncius.subscribe($1, $2, $3, $4)",
            topic,
            subscriber,
            start,
            holds_retention,
        )
        found = await self._topics.existing(topic)
        return Subscription(rows[0][0], found, subscriber, rows[0][1])

    async def find(self, topic: str, subscriber: str) -> Subscription:
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

    def confirm_soon(
        self,
        subscription: Subscription,
        partition: int,
        position: int,
        done: Callable[[Any], None],
        *,
        caller: Hashable = None,
    ) -> None:
        """Everything below the position has arrived; `done` gets None or an exception."""

        def confirmed(code: Any) -> None:
            if code == NO_SUBSCRIPTION:
                code = NoSuchSubscription(
                    f"{subscription.subscriber!r} is not subscribed to {subscription.topic.name!r}"
                )
            elif code == NOT_PUBLISHED:
                code = InvalidInput(f"position {position} is beyond the end of the partition")
            done(code if isinstance(code, Exception) else None)

        self._confirming.submit(
            ConfirmCall(
                confirmed,
                caller,
                subscription.subscription_id,
                subscription.topic.partition_id(partition),
                position,
            )
        )

    async def reader(self, subscription: Subscription) -> "Reader":
        """A reader that begins after what is confirmed."""
        reader = Reader(self._store, self._topics, self._signals, subscription)
        await reader.find_place()
        return reader


class Reader:
    """Goes through a topic's partitions in turn, from a subscription's place on. It moves by itself; only
    confirming moves the subscription."""

    def __init__(self, store: Store, topics: Topics, signals: Signals, subscription: Subscription) -> None:
        self._store = store
        self._topics = topics
        self._signals = signals
        self.subscription = subscription
        self._places: dict[int, tuple[int, int]] = {}  # partition: its id, the next offset
        self._found: deque[tuple[int, Entries]] = deque()
        self._catalogue = 0

    async def find_place(self) -> None:
        """Looks up where to begin, in partitions that are new to this reader."""
        self._catalogue = self._signals.catalogue
        rows = await self._store.query(
            "select partition, partition_id, position from nuncius.positions_of($1)",
            [self.subscription.subscription_id],
        )
        if not rows:
            raise NoSuchSubscription(
                f"{self.subscription.subscriber!r} is not subscribed to"
                f" {self.subscription.topic.name!r} any more"
            )
        for partition, partition_id, position in rows:
            self._places.setdefault(partition, (partition_id, position))

    async def next(self, limit: int, caller: Hashable = None) -> tuple[int, Entries]:
        """The partition and the entries that come next; waits until there are some."""
        topic_id = self.subscription.topic.topic_id
        while not self._found:
            if self._catalogue != self._signals.catalogue:
                await self.find_place()
            version = self._signals.version(topic_id)
            looks = [
                (partition, self._topics.fetch_now(partition_id, position, limit, caller))
                for partition, (partition_id, position) in self._places.items()
            ]
            await asyncio.gather(*(look for _, look in looks))
            for partition, look in looks:
                entries = look.result()
                if isinstance(entries, Entries):
                    self._found.append((partition, entries))
                elif entries == GONE:
                    self._topics.names.forget(self.subscription.topic.name)
                    raise NoSuchTopic(f"topic {self.subscription.topic.name!r} was deleted")
            if not self._found:
                await self._signals.wait(topic_id, version, None)
        partition, entries = self._found.popleft()
        if len(entries.bodies) > limit:  # it was found when more was asked for
            entries, rest = entries.split(limit)
            self._found.appendleft((partition, rest))
        partition_id, _ = self._places[partition]
        # To the back of the line, so that a busy partition does not starve the others.
        del self._places[partition]
        self._places[partition] = (partition_id, entries.next_offset)
        return partition, entries
