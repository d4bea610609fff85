"""Topic methods of the asyncio client."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from nuncius.client import errors
from nuncius.client.calls import Calls
from nuncius.client.checks import check_key, headers_text, milliseconds
from nuncius.client.connection.piles import PublishPile
from nuncius.client.model import (
    Body,
    Entry,
    PartitionState,
    Receipt,
    SubscriptionState,
    TopicState,
    from_micros,
)
from nuncius.client.subscription import PREFETCH, AsyncSubscription, PendingSubscription
from nuncius.wire import packets


class TopicCalls(Calls):
    def publish(
        self,
        topic: str,
        body: Body,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int = 0,
        timeout: float | None = None,
    ) -> Awaitable[Receipt]:
        """Publish a message. The call is complete when it is stored. Creates the topic if there is none.

        Start many calls before you await them: calls started together share a packet."""
        data = self._checked(body)
        if key is not None:
            check_key(key)
        header = headers_text(headers) if headers else None
        future: asyncio.Future[Receipt] = self._loop.create_future()
        pile = self._outbox.publishes(topic, partition, timeout or self._timeout)
        pile.size += len(data)
        pile.bodies.append(data)
        pile.keys.append(key)
        pile.headers.append(header)
        pile.futures.append(future)
        return future

    async def publish_batch(
        self,
        topic: str,
        bodies: Sequence[Body],
        *,
        keys: Sequence[str | None] | None = None,
        headers: Sequence[Mapping[str, str] | None] | None = None,
        partition: int = 0,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Publish messages in one transaction: all or none."""
        pile = PublishPile(topic, partition, timeout or self._timeout)
        pile.bodies = self._all_checked(bodies)
        pile.size = sum(map(len, pile.bodies))
        pile.keys = _column(keys, len(bodies))
        pile.headers = [headers_text(h) for h in _column(headers, len(bodies))] if headers else []
        return await self._outbox.send_now(pile)

    async def fetch(
        self, topic: str, partition: int = 1, offset: int = 0, limit: int = 100, *, wait: float = 0
    ) -> list[Entry]:
        """Return messages from an offset on, without a subscription. Waits up to `wait` seconds for the
        first."""
        answer = await self._call(
            packets.Fetch, topic, partition, offset, limit, milliseconds(wait), wait=wait
        )
        count = len(answer.bodies)
        keys = answer.keys or (None,) * count
        headers = answer.headers or (None,) * count
        return [
            Entry(body, time, header, topic, partition, answer.first + i, key)
            for i, (body, time, header, key) in enumerate(
                zip(answer.bodies, answer.times, headers, keys, strict=True)
            )
        ]

    def subscribe(
        self,
        topic: str,
        subscriber: str,
        *,
        start: str = "latest",
        holds_retention: bool = False,
        auto_confirm: bool = True,
        prefetch: int = PREFETCH,
    ) -> PendingSubscription:
        """Create a subscription, or continue the one of that name. `start` applies to a new one: 'latest' or
        'earliest'. Iterate over the result to read messages.

        `async with client.subscribe(...) as subscription` closes it at the end; after `subscription = await
        client.subscribe(...)`, close it yourself."""
        return PendingSubscription(
            self._subscribe(topic, subscriber, start, holds_retention, auto_confirm, max(1, prefetch))
        )

    async def _subscribe(
        self,
        topic: str,
        subscriber: str,
        start: str,
        holds_retention: bool,
        auto_confirm: bool,
        prefetch: int,
    ) -> AsyncSubscription:
        answer = await self._call(packets.Subscribe, topic, subscriber, start, holds_retention)
        return AsyncSubscription(
            self,
            topic,
            subscriber,
            number=answer.subscription,
            prefetch=prefetch,
            auto_confirm=auto_confirm,
        )

    async def unsubscribe(self, topic: str, subscriber: str) -> None:
        """Delete a subscription and its positions."""
        await self._call(packets.Unsubscribe, topic, subscriber, repeatable=False)

    async def confirm(self, topic: str, subscriber: str, partition: int, position: int) -> None:
        """Confirm all messages of a partition below the offset `position`."""
        await self._call(packets.Confirm, topic, subscriber, partition, position)

    async def subscriptions(
        self, topic: str | None = None, subscriber: str | None = None
    ) -> list[SubscriptionState]:
        """Return the state of subscriptions: all, or those of one topic, one subscriber, or both."""
        answer = await self._call(packets.ListSubscriptions, topic, subscriber)
        return [
            SubscriptionState(
                s.topic,
                s.subscriber,
                s.holds_retention,
                from_micros(s.created),
                s.lag,
                None if s.confirmed is None else from_micros(s.confirmed),
            )
            for s in answer.subscriptions
        ]

    async def create_topic(self, topic: str, *, partitions: int = 1) -> None:
        """Create a topic."""
        await self._call(packets.CreateTopic, topic, partitions, repeatable=False)

    async def grow_topic(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic until it has this many. Their number never decreases."""
        await self._call(packets.GrowTopic, topic, partitions)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic, its messages and its subscriptions."""
        await self._call(packets.DeleteTopic, topic, repeatable=False)

    async def purge_topic(self, topic: str) -> int:
        """Make all messages of a topic unreadable and return their number."""
        return await self._number(packets.PurgeTopic, topic)

    async def set_retention(
        self,
        topic: str,
        mode: str,
        *,
        seconds: int | None = None,
        bytes: int | None = None,  # noqa: A002  (its unit)
    ) -> None:
        """Set the retention of a topic: 'forever', 'subscribers', 'time' with `seconds`, or 'size' with
        `bytes` per partition."""
        await self._call(packets.SetRetention, topic, mode, seconds, bytes)

    async def topics(self, *names: str) -> list[TopicState]:
        """Return the state of the named topics, or of all topics."""
        answer = await self._call(packets.ListTopics, list(names) or None)
        return [
            TopicState(
                t.name,
                t.retention,
                t.seconds,
                t.bytes,
                from_micros(t.created),
                tuple(PartitionState(n, *ends) for n, ends in enumerate(t.partitions, 1)),
                t.subscriptions,
            )
            for t in answer.topics
        ]


def _column(values: Sequence[Any] | None, length: int) -> list[Any]:
    if values is None:
        return []
    if len(values) != length:
        raise errors.InvalidInput("there must be as many of each as there are messages")
    return list(values)
