"""The client, for asyncio. `Client` in `sync` has the same verbs for everybody else."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from nuncius.client import errors
from nuncius.client.address import DEFAULT_URL, parse
from nuncius.client.caller import Caller
from nuncius.client.model import (
    Body,
    Entry,
    Message,
    PartitionState,
    PutReceipt,
    QueueState,
    Receipt,
    SubscriptionState,
    TopicState,
    from_micros,
    headers_text,
)
from nuncius.client.outbox import Outbox
from nuncius.client.piles import PublishPile, PutPile
from nuncius.client.subscription import PREFETCH, AsyncSubscription, push_for
from nuncius.doors.telesto import packets

TIMEOUT = 30.0
GRACE = 5.0  # beyond the time the node was asked to wait
MODES = {"priority": 1, "time": 2}


class AsyncClient:
    """A connection to a broker that repairs itself.

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
        self._timeout = timeout
        self._name = name
        self._temporary = False
        self._lasting = bool(publisher)
        self._publisher = publisher or f"once-{uuid.uuid4()}"
        self._caller = Caller(parse(url), self._hello)
        self._caller.on_push = self._pushed
        self._caller.on_connected = self._connected
        self._outbox = Outbox(self._caller, self._last_count if publisher else None)
        self._subscriptions: dict[int, AsyncSubscription] = {}
        self._paused: set[AsyncSubscription] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._max_body = 0
        self._identifying = asyncio.Lock()
        self.client_id = 0

    @classmethod
    async def connect(cls, url: str = DEFAULT_URL, **options: Any) -> "AsyncClient":
        client = cls(url, **options)
        await client.open()
        return client

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._caller.connect(self._timeout)

    async def close(self) -> None:
        for subscription in list(self._subscriptions.values()):
            await subscription.close()
        if self._temporary and self.client_id:
            await self._call(packets.Forget, repeatable=False)
        await self._caller.close()

    async def __aenter__(self) -> "AsyncClient":
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

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
    ) -> Awaitable[Receipt]:
        """Publishes an entry; the result is there when it is stored. The topic is made if need be. Start
        many without waiting for each: those that are started together travel together."""
        pile = self._outbox.publishes(topic, partition, timeout or self._timeout)
        future: asyncio.Future[Receipt] = self._loop.create_future()
        pile.bodies.append(self._checked(body))
        pile.keys.append(key)
        pile.headers.append(headers_text(headers) if headers else None)
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
        """Publishes entries in one transaction: all of them or none."""
        pile = PublishPile(topic, partition, timeout or self._timeout)
        pile.bodies = self._all_checked(bodies)
        pile.keys = _column(keys, len(bodies))
        pile.headers = [headers_text(h) for h in _column(headers, len(bodies))] if headers else []
        return await self._outbox.send_now(pile)

    async def fetch(
        self, topic: str, partition: int = 1, offset: int = 0, limit: int = 100, *, wait: float = 0
    ) -> list[Entry]:
        """Entries from an offset on, without a subscription."""
        answer = await self._call(
            packets.Fetch, topic, partition, offset, limit, int(wait * 1000), extra=wait
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

    async def subscribe(
        self,
        topic: str,
        subscriber: str,
        *,
        start: str = "latest",
        holds_retention: bool = False,
        auto_confirm: bool = True,
        prefetch: int = PREFETCH,
    ) -> AsyncSubscription:
        """Subscribes, or goes on with the subscription of that name. `start`: 'latest' or 'earliest', for a
        new one. Read it by iterating over it."""
        await self._call(packets.Subscribe, topic, subscriber, start, holds_retention)
        return AsyncSubscription(
            self, topic, subscriber, prefetch=max(1, prefetch), auto_confirm=auto_confirm
        )

    async def unsubscribe(self, topic: str, subscriber: str) -> None:
        """Ends a subscription and forgets its place."""
        await self._call(packets.Unsubscribe, topic, subscriber, repeatable=False)

    async def confirm(self, topic: str, subscriber: str, partition: int, position: int) -> None:
        """Everything below that offset has arrived."""
        await self._call(packets.Confirm, topic, subscriber, partition, position)

    async def subscriptions(
        self, topic: str | None = None, subscriber: str | None = None
    ) -> list[SubscriptionState]:
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
        await self._call(packets.CreateTopic, topic, partitions, repeatable=False)

    async def delete_topic(self, topic: str) -> None:
        await self._call(packets.DeleteTopic, topic, repeatable=False)

    async def purge_topic(self, topic: str) -> int:
        """Makes all entries unreadable; answers how many there were."""
        return await self._number(packets.PurgeTopic, topic)

    async def set_retention(
        self,
        topic: str,
        mode: str,
        *,
        seconds: int | None = None,
        bytes: int | None = None,  # noqa: A002  (its unit)
    ) -> None:
        """'forever', 'subscribers', 'time' with seconds, or 'size' with bytes a partition."""
        await self._call(packets.SetRetention, topic, mode, seconds, bytes)

    async def topics(self, *names: str) -> list[TopicState]:
        """The topics of those names, or all."""
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
    ) -> Awaitable[PutReceipt]:
        """Puts a message into a queue; the result is there when it is stored. Into several queues: all or
        none."""
        timeout = timeout or self._timeout
        several = None if isinstance(queue, str) else PutPile(queue, timeout)
        pile = several or self._outbox.puts(str(queue), timeout)
        pile.bodies.append(self._checked(body))
        pile.priorities.append(priority)
        pile.receivers.append(receiver)
        pile.contexts.append(context)
        pile.headers.append(headers_text(headers) if headers else None)
        if several is not None:
            return self._put_into_all(several)
        future: asyncio.Future[PutReceipt] = self._loop.create_future()
        pile.futures.append(future)
        return future

    async def _put_into_all(self, pile: PutPile) -> PutReceipt:
        (receipt,) = await self._outbox.send_now(pile)
        return receipt  # type: ignore[no-any-return]

    async def put_batch(
        self,
        queue: str,
        bodies: Sequence[Body],
        *,
        priority: int = 5,
        timeout: float | None = None,
    ) -> list[PutReceipt]:
        """Puts messages into a queue in one transaction: all of them or none."""
        pile = PutPile([queue], timeout or self._timeout)
        pile.bodies = self._all_checked(bodies)
        pile.priorities = [priority] * len(bodies)
        return await self._outbox.send_now(pile)

    async def take(
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
        found = await self.take_batch(queue, 1, wait=wait, mode=mode, sender=sender, context=context)
        return found[0] if found else None

    async def take_batch(
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
        if mode not in MODES:
            raise errors.InvalidInput(f"mode is 'priority' or 'time', not {mode!r}")
        answer = await self._call(
            packets.Take, queue, limit, MODES[mode], sender, context, int(wait * 1000), extra=wait
        )
        return [_message(queue, message) for message in answer.messages]

    async def messages(self, queue: str, *, mode: str = "priority") -> AsyncIterator[Message]:
        """Takes messages of a queue as they come, for ever."""
        while True:
            message = await self.take(queue, wait=60, mode=mode)
            if message is not None:
                yield message

    async def browse(self, queue: str, *, after: int = 0, limit: int = 100) -> list[Message]:
        """Messages of a queue, oldest first, without taking them."""
        answer = await self._call(packets.Browse, queue, after, limit)
        return [_message(queue, message) for message in answer.messages]

    async def request(
        self,
        queue: str,
        body: Body,
        *,
        priority: int = 5,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Puts a request into a queue and waits for the answer to it; raises Timeout if none comes."""
        await self._identify()
        timeout = timeout or self._timeout
        answer = await self._call(
            packets.Ask,
            queue,
            self._checked(body),
            priority,
            headers_text(headers),
            int(timeout * 1000),
            extra=timeout,
            repeatable=False,
        )
        if not answer.messages:
            raise errors.Timeout(f"no answer within {timeout:g} seconds")
        return _message(queue, answer.messages[0])

    def reply(
        self, request: Message, body: Body, *, headers: Mapping[str, str] | None = None
    ) -> Awaitable[PutReceipt]:
        """Answers a message that was put with `request`."""
        return self.put(
            request.queue,
            body,
            priority=request.priority,
            receiver=request.sender_id,
            context=request.context,
            headers=headers,
        )

    async def create_queue(self, queue: str) -> int:
        """Makes a queue and answers with its id."""
        return await self._number(packets.CreateQueue, queue)

    async def delete_queue(self, queue: str) -> None:
        await self._call(packets.DeleteQueue, queue, repeatable=False)

    async def purge_queue(self, queue: str) -> int:
        """Takes all messages away; answers how many there were."""
        return await self._number(packets.PurgeQueue, queue)

    async def queues(self, *names: str) -> list[QueueState]:
        """The queues of those names, or all."""
        answer = await self._call(packets.ListQueues, list(names) or None)
        return [
            QueueState(q.queue_id, q.name, q.depth, None if q.oldest is None else from_micros(q.oldest))
            for q in answer.queues
        ]

    # Clients and the node

    async def find_client(self, name: str) -> int:
        """The id under which messages can be addressed to a client."""
        answer = await self._call(packets.FindClient, name)
        number: int = answer.value
        return number

    async def ping(self) -> float:
        """Seconds to the node and back."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        await self._call(packets.Ping)
        return loop.time() - start

    async def status(self) -> dict[str, Any]:
        """A few facts about node and store."""
        answer = await self._call(packets.Status)
        facts: dict[str, Any] = json.loads(answer.json)
        return facts

    # What subscriptions use

    async def attach(self, subscription: AsyncSubscription, credit: int) -> None:
        packet = packets.Attach(
            self._caller.next_request(), subscription.topic, subscription.subscriber, credit
        )
        self._subscriptions[packet.request] = subscription
        subscription.attached(packet.request)
        try:
            await self._caller.call(packet, self._timeout, repeatable=False)
        except errors.ConnectionLost:
            pass  # the next connection attaches it again
        except BaseException:
            self._subscriptions.pop(packet.request, None)
            raise

    def detach(self, stream: int) -> None:
        subscription = self._subscriptions.pop(stream, None)
        if subscription is not None:
            self.resume(subscription)
        self._caller.tell(packets.Detach(self._caller.next_request(), stream))

    def credit(self, stream: int, entries: int) -> None:
        self._caller.tell(packets.Credit(stream, entries))

    def pause(self, subscription: AsyncSubscription) -> None:
        """Stops reading from the node: somebody has more than he can take."""
        self._paused.add(subscription)
        link = self._caller.link
        if link is not None:
            link.pause()

    def resume(self, subscription: AsyncSubscription) -> None:
        if subscription in self._paused:
            self._paused.discard(subscription)
            link = self._caller.link
            if link is not None and not self._paused:
                link.resume()

    # Inside

    def _hello(self) -> packets.Packet:
        return packets.Hello(self._caller.next_request(), self._name, 1, self._publisher, self._lasting)

    def _connected(self, welcome: packets.Welcome) -> None:
        self.client_id = welcome.client_id
        self._max_body = welcome.max_body
        streams, self._subscriptions = self._subscriptions, {}
        for subscription in streams.values():
            task = self._loop.create_task(self._attach_again(subscription))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _attach_again(self, subscription: AsyncSubscription) -> None:
        try:
            await self.attach(subscription, subscription.prefetch)
        except errors.NunciusError as error:
            subscription.failed(error)

    def _pushed(self, packet: Any) -> bool:
        return push_for(self._subscriptions, packet)

    async def _last_count(self, kind: str, name: str) -> int:
        answer = await self._call(packets.LastCount, kind, name)
        count: int = answer.value
        return count

    async def _identify(self) -> None:
        """Answers need somebody to go to: a client without a name takes one for as long as it lives."""
        async with self._identifying:
            if not self.client_id:
                self._name = self._name or f"once-{uuid.uuid4()}"
                self._temporary = True
                answer = await self._call(packets.Identify, self._name)
                self.client_id = answer.value

    def _checked(self, body: Body) -> bytes:
        data = body.encode() if isinstance(body, str) else body
        if len(data) > self._max_body:
            raise errors.InvalidInput(f"a message has at most {self._max_body} bytes, not {len(data)}")
        return data

    def _all_checked(self, bodies: Sequence[Body]) -> list[bytes]:
        if not bodies:
            raise errors.InvalidInput("there is nothing to send")
        return [self._checked(body) for body in bodies]

    async def _call(
        self,
        kind: Callable[..., packets.Packet],
        *fields: Any,
        repeatable: bool = True,
        extra: float | None = None,
    ) -> Any:
        timeout = self._timeout if extra is None else extra + GRACE
        packet = kind(self._caller.next_request(), *fields)
        return await self._caller.call(packet, timeout, repeatable=repeatable)

    async def _number(self, kind: Callable[..., packets.Packet], name: str) -> int:
        answer = await self._call(kind, name, repeatable=False)
        value: int = answer.value
        return value


def _column(values: Sequence[Any] | None, length: int) -> list[Any]:
    if values is None:
        return []
    if len(values) != length:
        raise errors.InvalidInput("there must be as many of each as there are messages")
    return list(values)


def _message(queue: str, message: packets.Message) -> Message:
    return Message(
        message.body,
        message.time,
        message.headers,
        queue,
        message.message_id,
        message.sender_id,
        message.receiver_id,
        message.context,
        message.priority,
    )
