"""Topic methods of the synchronous client."""

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
        """Publish a message and wait until it is stored. Creates the topic if it does not exist."""
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
        """Publish a message without waiting. The future returns the receipt when the message is stored.
        Blocks only while 10,000 calls are open."""
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
        """Publish messages in one transaction: all or none."""
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
        """Return messages from an offset on, without a subscription. Waits up to `wait` seconds for the
        first."""
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
        """Create a subscription, or continue the one of that name. `start` applies to a new one: 'latest' or
        'earliest'. Iterate over the result to read messages."""
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
        """Delete a subscription and its positions."""
        self._background.call(self._async.unsubscribe, topic, subscriber)

    def confirm(self, topic: str, subscriber: str, partition: int, position: int) -> None:
        """Confirm all messages of a partition below the offset `position`."""
        self._background.call(self._async.confirm, topic, subscriber, partition, position)

    def subscriptions(
        self, topic: str | None = None, subscriber: str | None = None
    ) -> list[SubscriptionState]:
        """Return the state of subscriptions: all, or those of one topic, one subscriber, or both."""
        return self._background.call(self._async.subscriptions, topic, subscriber)

    def create_topic(self, topic: str, *, partitions: int = 1) -> None:
        """Create a topic."""
        self._background.call(self._async.create_topic, topic, partitions=partitions)

    def grow_topic(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic until it has this many. Their number never decreases."""
        self._background.call(self._async.grow_topic, topic, partitions)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, its messages and its subscriptions."""
        self._background.call(self._async.delete_topic, topic)

    def purge_topic(self, topic: str) -> int:
        """Make all messages of a topic unreadable and return their number."""
        return self._background.call(self._async.purge_topic, topic)

    def set_retention(
        self,
        topic: str,
        mode: str,
        *,
        seconds: int | None = None,
        bytes: int | None = None,  # noqa: A002  (its unit)
    ) -> None:
        """Set the retention of a topic: 'forever', 'subscribers', 'time' with `seconds`, or 'size' with
        `bytes` per partition."""
        self._background.call(self._async.set_retention, topic, mode, seconds=seconds, bytes=bytes)

    def topics(self, *names: str) -> list[TopicState]:
        """Return the state of the named topics, or of all topics."""
        return self._background.call(self._async.topics, *names)
