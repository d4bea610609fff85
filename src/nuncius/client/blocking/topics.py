"""What a client without asyncio can do with topics."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from nuncius.client.aio import AsyncClient
from nuncius.client.blocking.background import Background
from nuncius.client.blocking.subscription import Subscription
from nuncius.client.model import Body, Entry, Receipt, SubscriptionState, TopicState
from nuncius.client.subscription import PREFETCH


class SyncTopicCalls:
    _async: AsyncClient
    _background: Background

    def publish(
        self,
        topic: str,
        body: Body,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int = 0,
        timeout: float | None = None,
    ) -> Receipt:
        """Publishes an entry; returns when it is stored. The topic is made if need be."""
        return self._background.ask(
            self._async.publish,
            topic,
            body,
            key=key,
            headers=headers,
            partition=partition,
            timeout=timeout,
        )

    def publish_soon(
        self,
        topic: str,
        body: Body,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int = 0,
        timeout: float | None = None,
    ) -> Future[Receipt]:
        """Publishes an entry without waiting; the future has the receipt when it is stored. Waits only
        while very many are open."""
        return self._background.start(
            self._async.publish,
            topic,
            body,
            key=key,
            headers=headers,
            partition=partition,
            timeout=timeout,
        )

    def publish_batch(
        self,
        topic: str,
        bodies: Sequence[Body],
        *,
        keys: Sequence[str | None] | None = None,
        headers: Sequence[Mapping[str, str] | None] | None = None,
        partition: int = 0,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Publishes entries in one transaction: all of them or none."""
        return self._background.call(
            self._async.publish_batch,
            topic,
            bodies,
            keys=keys,
            headers=headers,
            partition=partition,
            timeout=timeout,
        )

    def fetch(
        self, topic: str, partition: int = 1, offset: int = 0, limit: int = 100, *, wait: float = 0
    ) -> list[Entry]:
        """Entries from an offset on, without a subscription."""
        return self._background.call(self._async.fetch, topic, partition, offset, limit, wait=wait)

    def subscribe(
        self,
        topic: str,
        subscriber: str,
        *,
        start: str = "latest",
        holds_retention: bool = False,
        auto_confirm: bool = True,
        prefetch: int = PREFETCH,
    ) -> Subscription:
        """Subscribes, or goes on with the subscription of that name. `start`: 'latest' or 'earliest', for a
        new one. Read it by iterating over it."""
        inner = self._background.call(
            self._async.subscribe,
            topic,
            subscriber,
            start=start,
            holds_retention=holds_retention,
            auto_confirm=False,
            prefetch=prefetch,
        )
        return Subscription(self._background, inner, auto_confirm=auto_confirm)

    def unsubscribe(self, topic: str, subscriber: str) -> None:
        """Ends a subscription and forgets its place."""
        self._background.call(self._async.unsubscribe, topic, subscriber)

    def confirm(self, topic: str, subscriber: str, partition: int, position: int) -> None:
        """Everything below that offset has arrived."""
        self._background.call(self._async.confirm, topic, subscriber, partition, position)

    def subscriptions(
        self, topic: str | None = None, subscriber: str | None = None
    ) -> list[SubscriptionState]:
        return self._background.call(self._async.subscriptions, topic, subscriber)

    def create_topic(self, topic: str, *, partitions: int = 1) -> None:
        self._background.call(self._async.create_topic, topic, partitions=partitions)

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Adds partitions until there are so many; there are never fewer afterwards."""
        self._background.call(self._async.grow_topic, topic, partitions)

    def delete_topic(self, topic: str) -> None:
        self._background.call(self._async.delete_topic, topic)

    def purge_topic(self, topic: str) -> int:
        """Makes all entries unreadable; answers how many there were."""
        return self._background.call(self._async.purge_topic, topic)

    def set_retention(
        self,
        topic: str,
        mode: str,
        *,
        seconds: int | None = None,
        bytes: int | None = None,  # noqa: A002  (its unit)
    ) -> None:
        """'forever', 'subscribers', 'time' with seconds, or 'size' with bytes a partition."""
        self._background.call(self._async.set_retention, topic, mode, seconds=seconds, bytes=bytes)

    def topics(self, *names: str) -> list[TopicState]:
        """The topics of those names, or all."""
        return self._background.call(self._async.topics, *names)
