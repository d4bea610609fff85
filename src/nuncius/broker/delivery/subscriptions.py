"""Subscriptions: durable positions in a topic, and cursors that start there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from nuncius.broker.delivery.cursor import Cursor, Place
from nuncius.broker.delivery.tails import Tails
from nuncius.broker.errors import InvalidInput, NoSuchSubscription, NoSuchTopic
from nuncius.broker.limits import check_name, check_not_of_job, check_subscriber
from nuncius.broker.topics.topic import Topic
from nuncius.broker.topics.topics import Topics
from nuncius.store.queries import query
from nuncius.store.store import Store

SUBSCRIBE = query("subscriptions", "subscribe")
FIND = query("subscriptions", "find")
LIST = query("subscriptions", "list")
UNSUBSCRIBE = query("subscriptions", "unsubscribe")
PLACES = query("subscriptions", "places")
TOPIC_EXISTS = query("subscriptions", "topic_exists")


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
    def __init__(self, store: Store, topics: Topics, tails: Tails) -> None:
        self._store = store
        self._topics = topics
        self._tails = tails

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
        rows = await self._store.query(SUBSCRIBE, topic, subscriber, start, holds_retention, holder)
        found = await self._topics.existing(topic)
        return Subscription(rows[0][0], found, subscriber, rows[0][1])

    async def find(self, topic: str, subscriber: str) -> Subscription:
        """Find a subscription to read or to seek it. Refuse those of jobs."""
        check_not_of_job(subscriber)
        return await self.look_up(topic, subscriber)

    async def look_up(self, topic: str, subscriber: str) -> Subscription:
        """Find a subscription, to show it."""
        rows = await self._store.query(FIND, topic, subscriber)
        if not rows:
            raise NoSuchSubscription(f"{subscriber!r} is not subscribed to {topic!r}")
        return Subscription(rows[0][0], await self._topics.existing(topic), subscriber, False)

    async def unsubscribe(self, topic: str, subscriber: str) -> None:
        rows = await self._store.execute(UNSUBSCRIBE, topic, subscriber)
        if not rows[0][0]:
            raise NoSuchSubscription(f"{subscriber!r} is not subscribed to {topic!r}")

    async def list(
        self, topic: str | None = None, subscriber: str | None = None
    ) -> Sequence[SubscriptionInfo]:
        return [SubscriptionInfo(*row) for row in await self._store.query(LIST, topic, subscriber)]

    async def cursor(self, subscription: Subscription) -> Cursor:
        """Return a cursor that begins at the confirmed positions."""
        cursor = Cursor(self._tails, subscription.topic, find=partial(self._places, subscription))
        await cursor.find_places()
        return cursor

    async def _places(self, subscription: Subscription) -> Mapping[int, Place]:
        rows = await self._store.query(PLACES, [subscription.subscription_id])
        if rows:
            return {partition: (partition_id, position) for partition, partition_id, position in rows}
        topic = subscription.topic
        if (await self._store.query(TOPIC_EXISTS, topic.topic_id))[0][0]:
            raise NoSuchSubscription(
                f"{subscription.subscriber!r} is not subscribed to {topic.name!r} any more"
            )
        raise NoSuchTopic(f"topic {topic.name!r} was deleted")
