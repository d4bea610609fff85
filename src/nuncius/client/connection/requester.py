"""Requests and their answers over connections that break and are replaced.

A request is sent on the current connection, or on the next one. When a connection breaks, repeatable requests
are sent again, in their order, on the next one. The others fail, because their outcome is unknown. One timer
checks all deadlines.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from nuncius.client import errors
from nuncius.client.connection.link import ClientLink
from nuncius.wire import packets
from nuncius.wire.packets import Packet

SWEEP_SECONDS = 0.05
CONNECT_SECONDS = 10.0
FIRST_RETRY_SECONDS = 0.05
LAST_RETRY_SECONDS = 2.0
# Numbers of more than 64 bits, halves of surrogate pairs, and types that the protocol does not have.
UNSPEAKABLE = (OverflowError, ValueError, TypeError)


class Pending:
    """A request without an answer yet."""

    __slots__ = ("deadline", "done", "packet", "repeatable")

    def __init__(
        self, packet: Packet, done: Callable[[Any], None], deadline: float, repeatable: bool
    ) -> None:
        self.packet = packet
        self.done = done
        self.deadline = deadline
        self.repeatable = repeatable


class Requester:
    def __init__(self, addresses: Sequence[tuple[str, int]], hello: Callable[[], Packet]) -> None:
        self._addresses = list(addresses)
        self._hello = hello  # makes the packet that opens a connection
        self._link: ClientLink | None = None
        self._welcomed: asyncio.Future[packets.Welcome] | None = None
        self._pending: dict[int, Pending] = {}
        self._last_request = 0
        self._reconnecting: asyncio.Task[None] | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self.on_push: Callable[[Packet], bool] = lambda packet: False
        self.on_unclaimed: Callable[[Packet], None] = lambda packet: None
        """Receives answers to requests that were withdrawn or timed out."""
        self.on_connected: Callable[[packets.Welcome], None] = lambda welcome: None

    async def connect(self, timeout: float) -> None:
        """Open the first connection. Later connections are opened as they are needed."""
        if self._closed:
            raise errors.Closed("the client is closed")
        self._loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                error = await self._try_all()
        except TimeoutError:
            error = errors.CannotConnect(f"no answer within {timeout:g} seconds")
        if error is not None:
            raise error

    def next_request(self) -> int:
        self._last_request += 1
        return self._last_request

    def submit(
        self, packet: Packet, done: Callable[[Any], None], timeout: float, *, repeatable: bool
    ) -> None:
        """Send a request. `done` receives the answer packet or an exception."""
        if self._closed:
            done(errors.Closed("the client is closed"))
            return
        deadline = self._loop.time() + timeout
        pending = self._pending[packet.request] = Pending(packet, done, deadline, repeatable)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        if self._link is not None:
            self._send(self._link, pending)

    def _send(self, link: ClientLink, pending: Pending) -> None:
        try:
            link.send(pending.packet)
        except UNSPEAKABLE as error:
            del self._pending[pending.packet.request]
            pending.done(_cannot_be_sent(error))

    async def call(self, packet: Packet, timeout: float, *, repeatable: bool = True) -> Any:
        """Send a request and wait for the answer. One that comes just when the wait is cancelled is
        unclaimed."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(result: Any) -> None:
            if isinstance(result, Exception):
                if not future.done():
                    future.set_exception(result)
            elif future.done():
                self.on_unclaimed(result)
            else:
                future.set_result(result)

        self.submit(packet, done, timeout, repeatable=repeatable)
        try:
            return await future
        except asyncio.CancelledError:
            self.withdraw(packet.request)
            if not future.cancelled() and future.exception() is None:
                self.on_unclaimed(future.result())
            raise

    def withdraw(self, request: int, rest: Packet | None = None) -> bool:
        """Withdraw a request. If the connection breaks, `rest` is sent in its place, if given. Return True if
        the node was told; it then answers at once with what it has."""
        pending = self._pending.get(request)
        if pending is None:
            return False
        if rest is None:
            del self._pending[request]
        else:
            pending.packet = rest
        self.tell(packets.Withdraw(self.next_request(), request))
        return self._link is not None

    def tell(self, packet: Packet) -> None:
        """Send a packet that has no answer, if there is a connection."""
        if self._link is not None:
            self._link.send(packet)

    @property
    def link(self) -> ClientLink | None:
        return self._link

    async def close(self) -> None:
        self._closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reconnecting
        if self._sweeper is not None:
            self._sweeper.cancel()
        for pending in self._take_all():
            pending.done(errors.Closed("the client was closed"))
        if self._link is not None:
            self._link.close()
            self._link = None

    # Connecting

    async def _try_all(self) -> errors.NunciusError | None:
        """Try each address once. Return None if one of them accepts."""
        error: errors.NunciusError = errors.CannotConnect("no address to connect to")
        for _ in range(len(self._addresses)):
            host, port = self._addresses[0]
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._open(host, port)
                return None
            except errors.NunciusError as refusal:
                error = refusal
            except (OSError, TimeoutError) as failure:
                error = errors.CannotConnect(f"cannot connect to {host}:{port} ({failure})")
            self._addresses.append(self._addresses.pop(0))
        return error

    async def _open(self, host: str, port: int) -> None:
        welcomed = self._welcomed = self._loop.create_future()
        link: ClientLink | None = None
        try:
            _, link = await self._loop.create_connection(
                lambda: ClientLink(self._received, self._lost), host, port
            )
            link.send(self._hello())
            welcome = await welcomed
        except BaseException as error:
            if link is not None:
                link.close()
            if not welcomed.cancel() and not welcomed.cancelled():
                welcomed.exception()  # the connection may be lost before the welcome is waited for
            if isinstance(error, UNSPEAKABLE):
                raise _cannot_be_sent(error) from None
            raise
        finally:
            self._welcomed = None
        self._link = link
        self.on_connected(welcome)
        for pending in list(self._pending.values()):
            self._send(link, pending)

    def _lost(self, link: ClientLink) -> None:
        if self._welcomed is not None and not self._welcomed.done():
            self._welcomed.set_exception(errors.CannotConnect("the node closed the connection"))
        if link is not self._link:
            return
        self._link = None
        if self._closed:
            return
        for request, pending in list(self._pending.items()):
            if not pending.repeatable:
                del self._pending[request]
                pending.done(errors.ConnectionLost("the connection broke; the outcome is not known"))
        self._reconnecting = self._loop.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        pause = FIRST_RETRY_SECONDS
        while await self._try_all() is not None:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_RETRY_SECONDS)

    # Answers

    def _received(self, packet: Packet) -> None:
        if self._welcomed is not None and not self._welcomed.done():
            if isinstance(packet, packets.Welcome):
                self._welcomed.set_result(packet)
            elif isinstance(packet, packets.Error):
                self._welcomed.set_exception(errors.from_packet(packet.code, packet.text))
            return
        if self.on_push(packet):
            return
        pending = self._pending.get(packet.request)
        if pending is None:
            self.on_unclaimed(packet)
            return
        if type(packet) is packets.Error:
            if packet.code == packets.ErrorCode.CLOSING and pending.repeatable:
                return  # it stays pending for the next connection
            del self._pending[packet.request]
            pending.done(errors.from_packet(packet.code, packet.text))
        else:
            del self._pending[packet.request]
            pending.done(packet)

    def _sweep(self) -> None:
        now = self._loop.time()
        for request, pending in list(self._pending.items()):
            if pending.deadline <= now:
                del self._pending[request]
                self.tell(packets.Withdraw(self.next_request(), request))
                pending.done(errors.Timeout("no answer in time; the outcome is not known"))
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep) if self._pending else None

    def _take_all(self) -> list[Pending]:
        pending = list(self._pending.values())
        self._pending.clear()
        return pending


def _cannot_be_sent(error: Exception) -> errors.InvalidInput:
    return errors.InvalidInput(f"this cannot be sent: {error}")
