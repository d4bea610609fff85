"""The base of all calls of a client: a connection that reconnects by itself, and its subscriptions."""

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

from nuncius.client import errors
from nuncius.client.checks import as_bytes
from nuncius.client.connection.address import DEFAULT_URL, parse
from nuncius.client.connection.outbox import MAX_ROWS, PublisherOutbox
from nuncius.client.connection.requester import Requester
from nuncius.client.connection.takers import Takers
from nuncius.client.lease import give_back
from nuncius.client.model import Body
from nuncius.client.subscription import AsyncSubscription, push_for
from nuncius.wire import packets

TIMEOUT = 30.0


class Calls:
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
        self._requester = Requester(parse(url), self._hello)
        self._requester.on_push = self._pushed
        self._requester.on_connected = self._connected
        self._requester.on_unclaimed = partial(give_back, self._requester)
        self._outbox = PublisherOutbox(self._requester, self._last_count if publisher else None)
        self._takers = Takers(self._requester)
        self._subscriptions: dict[int, AsyncSubscription] = {}
        self._paused: set[AsyncSubscription] = set()
        self._max_body = -1  # -1: not open yet
        self._identifying = asyncio.Lock()
        self.client_id: int = 0
        """This client's id at the broker, or 0 if it has none."""

    @classmethod
    async def connect(cls, url: str = DEFAULT_URL, **options: Any) -> Self:
        """Return an open client. The options are those of the constructor."""
        client = cls(url, **options)
        await client.open()
        return client

    async def open(self) -> None:
        """Connect to a node. Raises CannotConnect if no node can be reached."""
        self._loop = asyncio.get_running_loop()
        await self._requester.connect(self._timeout)

    async def close(self) -> None:
        """Close the client and its subscriptions. Calls that still wait fail with Closed."""
        try:
            for subscription in list(self._subscriptions.values()):
                await subscription.close()
            if self._temporary and self.client_id and self._requester.link is not None:
                with contextlib.suppress(errors.NunciusError):
                    await self._call(packets.Forget, repeatable=False)
        finally:  # also when the caller does not wait for that
            await self._requester.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # For subscriptions

    async def attach(self, subscription: AsyncSubscription, credit: int) -> None:
        """Ask the node to send messages of a subscription. A new connection attaches it again."""
        packet = packets.Attach(
            self._requester.next_request(),
            subscription.topic,
            subscription.subscriber,
            credit,
            subscription.number,
        )
        self._subscriptions[packet.request] = subscription
        subscription.attached(packet.request)
        try:
            await self._requester.call(packet, self._timeout, repeatable=False)
        except errors.ConnectionLost:
            pass
        except BaseException:
            subscription.attached(0)
            self.detach(packet.request)
            raise

    async def confirm_place(self, subscription: AsyncSubscription, partition: int, position: int) -> None:
        topic, subscriber, number = subscription.topic, subscription.subscriber, subscription.number
        await self._call(packets.Confirm, topic, subscriber, partition, position, number)

    def detach(self, stream: int) -> None:
        subscription = self._subscriptions.pop(stream, None)
        if subscription is not None:
            self.resume(subscription)
        self._requester.tell(packets.Detach(self._requester.next_request(), stream))

    def credit(self, stream: int, entries: int) -> None:
        self._requester.tell(packets.Credit(stream, entries))

    def pause(self, subscription: AsyncSubscription) -> None:
        """Stop reading from the node: a subscription's buffer is full."""
        self._paused.add(subscription)
        link = self._requester.link
        if link is not None:
            link.pause()

    def resume(self, subscription: AsyncSubscription) -> None:
        if subscription in self._paused:
            self._paused.discard(subscription)
            link = self._requester.link
            if link is not None and not self._paused:
                link.resume()

    # Inside

    def _hello(self) -> packets.Packet:
        return packets.Hello(self._requester.next_request(), self._name, 1, self._publisher, self._lasting)

    def _connected(self, welcome: packets.Welcome) -> None:
        self.client_id = welcome.client_id
        self._max_body = welcome.max_body
        self._outbox.max_rows = min(MAX_ROWS, welcome.max_batch)
        streams, self._subscriptions = self._subscriptions, {}
        for stream, subscription in streams.items():
            if subscription.is_attaching:  # its Attach is sent on this connection
                self._subscriptions[stream] = subscription
            else:
                subscription.attach_soon()

    def _pushed(self, packet: Any) -> bool:
        return push_for(self._subscriptions, packet)

    async def _last_count(self, kind: str, name: str) -> int:
        answer = await self._call(packets.LastCount, kind, name)
        count: int = answer.value
        return count

    def _checked(self, body: Body) -> bytes:
        data = body if isinstance(body, bytes) else as_bytes(body)
        if len(data) > self._max_body:
            self._check_open()
            raise errors.InvalidInput(f"a message has at most {self._max_body} bytes, not {len(data)}")
        return data

    def _check_open(self) -> None:
        if self._max_body < 0:
            raise errors.Closed("the client is not open: use it in a `with` block, or open() it")

    def _all_checked(self, bodies: Sequence[Body]) -> list[bytes]:
        if not bodies:
            raise errors.InvalidInput("there is nothing to send")
        return [self._checked(body) for body in bodies]

    async def _call(
        self,
        kind: Callable[..., packets.Packet],
        *fields: Any,
        repeatable: bool = True,
        wait: float = 0,
    ) -> Any:
        """Send a request and return the answer. `wait` is the time the node was asked to wait; it extends the
        timeout."""
        self._check_open()
        packet = kind(self._requester.next_request(), *fields)
        return await self._requester.call(packet, self._timeout + wait, repeatable=repeatable)

    async def _number(self, kind: Callable[..., packets.Packet], name: str) -> int:
        answer = await self._call(kind, name, repeatable=False)
        value: int = answer.value
        return value
