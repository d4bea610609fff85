"""The client for programs without asyncio: the verbs of `AsyncClient`, each of which waits.

An `AsyncClient` runs in a thread of its own; this class only passes calls on and waits for results. Any
number of threads may share a client, and the more of them publish at once, the better it goes: what they
hand in together travels together. One thread alone gets the same with `publish_soon` and `put_soon`.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from nuncius.client.address import DEFAULT_URL
from nuncius.client.aio import TIMEOUT, AsyncClient
from nuncius.client.background import Background
from nuncius.client.model import (
    Body,
    Entry,
    Message,
    PutReceipt,
    QueueState,
    Receipt,
    SubscriptionState,
    TopicState,
)
from nuncius.client.subscription import PREFETCH
from nuncius.client.sync_subscription import Subscription

LONG_WAIT = 60.0  # of one request; `messages` sends one after the other


class Client:
    """A connection to a broker that repairs itself. Use it in a `with` block, or `open` and `close` it.

    Messages are counted under the `publisher` name, so that each is stored once, whatever breaks and is
    sent again. By default that name is made up and means nothing after this client is closed; a name of
    your own lets a restarted program go on counting where it stopped.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        name: str = "",
        publisher: str = "",
        timeout: float = TIMEOUT,
    ) -> None:
        self._async = AsyncClient(url, name=name, publisher=publisher, timeout=timeout)
        self._background = Background()

    @classmethod
    def connect(cls, url: str = DEFAULT_URL, **options: Any) -> "Client":
        client = cls(url, **options)
        client.open()
        return client

    def open(self) -> None:
        try:
            self._background.call(self._async.open)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._background.stop(self._async.close)

    def __enter__(self) -> "Client":
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def client_id(self) -> int:
        return self._async.client_id

    # Topics

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

    # Queues

    def put(
        self,
        queue: str | Sequence[str],
        body: Body,
        *,
        priority: int = 5,
        receiver: int = 0,
        context: int = 0,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> PutReceipt:
        """Puts a message into a queue; returns when it is stored. Into several queues: all or none."""
        return self._background.ask(
            self._async.put,
            queue,
            body,
            priority=priority,
            receiver=receiver,
            context=context,
            headers=headers,
            timeout=timeout,
        )

    def put_soon(
        self,
        queue: str | Sequence[str],
        body: Body,
        *,
        priority: int = 5,
        receiver: int = 0,
        context: int = 0,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Future[PutReceipt]:
        """Puts a message without waiting; the future has the receipt when it is stored. Waits only while
        very many are open."""
        return self._background.start(
            self._async.put,
            queue,
            body,
            priority=priority,
            receiver=receiver,
            context=context,
            headers=headers,
            timeout=timeout,
        )

    def put_batch(
        self,
        queue: str,
        bodies: Sequence[Body],
        *,
        priority: int = 5,
        timeout: float | None = None,
    ) -> list[PutReceipt]:
        """Puts messages into a queue in one transaction: all of them or none."""
        return self._background.call(self._async.put_batch, queue, bodies, priority=priority, timeout=timeout)

    def take(
        self,
        queue: str,
        *,
        wait: float = 0,
        mode: str = "priority",
        sender: int = 0,
        context: int = 0,
    ) -> Message | None:
        """Takes a message: the one with the highest priority, or, with mode 'time', the oldest. Waits up to
        `wait` seconds for one; None if there is none."""
        return self._background.call(
            self._async.take, queue, wait=wait, mode=mode, sender=sender, context=context
        )

    def take_batch(
        self,
        queue: str,
        limit: int,
        *,
        wait: float = 0,
        mode: str = "priority",
        sender: int = 0,
        context: int = 0,
    ) -> list[Message]:
        """Takes up to `limit` messages; waits up to `wait` seconds for the first."""
        return self._background.call(
            self._async.take_batch,
            queue,
            limit,
            wait=wait,
            mode=mode,
            sender=sender,
            context=context,
        )

    def messages(self, queue: str, *, mode: str = "priority") -> Iterator[Message]:
        """Takes messages of a queue as they come, for ever."""
        while True:
            message = self.take(queue, wait=LONG_WAIT, mode=mode)
            if message is not None:
                yield message

    def browse(self, queue: str, *, after: int = 0, limit: int = 100) -> list[Message]:
        """Messages of a queue, oldest first, without taking them."""
        return self._background.call(self._async.browse, queue, after=after, limit=limit)

    def request(
        self,
        queue: str,
        body: Body,
        *,
        priority: int = 5,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Puts a request into a queue and waits for the answer to it; raises Timeout if none comes."""
        return self._background.call(
            self._async.request, queue, body, priority=priority, headers=headers, timeout=timeout
        )

    def reply(self, request: Message, body: Body, *, headers: Mapping[str, str] | None = None) -> PutReceipt:
        """Answers a message that was put with `request`."""
        return self._background.ask(self._async.reply, request, body, headers=headers)

    def create_queue(self, queue: str) -> int:
        """Makes a queue and answers with its id."""
        return self._background.call(self._async.create_queue, queue)

    def delete_queue(self, queue: str) -> None:
        self._background.call(self._async.delete_queue, queue)

    def purge_queue(self, queue: str) -> int:
        """Takes all messages away; answers how many there were."""
        return self._background.call(self._async.purge_queue, queue)

    def queues(self, *names: str) -> list[QueueState]:
        """The queues of those names, or all."""
        return self._background.call(self._async.queues, *names)

    # Clients and the node

    def find_client(self, name: str) -> int:
        """The id under which messages can be addressed to a client."""
        return self._background.call(self._async.find_client, name)

    def ping(self) -> float:
        """Seconds to the node and back."""
        return self._background.call(self._async.ping)

    def status(self) -> dict[str, Any]:
        """A few facts about node and store."""
        return self._background.call(self._async.status)
