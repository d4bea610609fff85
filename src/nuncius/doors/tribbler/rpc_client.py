"""Call other nodes, with one connection per node and many calls in flight on it."""

import asyncio
import contextlib
import itertools
from typing import cast

import msgspec

from nuncius.doors.tribbler.gob_decoder_codec import S
from nuncius.doors.tribbler.gob_wire_codec import GobError, Mismatch
from nuncius.doors.tribbler.rpc_codec import CONNECT, ClientCodec, HandshakeError, RpcAnswer
from nuncius.ring.peers import Unreached
from nuncius.ring.storage import OwnerSilent

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0


class RpcError(Exception):
    """The error that the other node answered with."""


class _Link(asyncio.Protocol):
    """One connection. It is opened on demand, and not used again after it is lost."""

    connected: asyncio.Future[None]

    def __init__(self, address: str) -> None:
        self._address = address
        self._codec = ClientCodec()
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.Future[RpcAnswer]] = {}
        self._out: list[bytes] = []
        self.is_lost = False

    async def call(self, method: str, arguments: msgspec.Struct, kind: type[S], seconds: float | None) -> S:
        if self.is_lost:
            raise Unreached(f"{self._address}: the connection was lost before the call")
        seq = next(self._numbers)
        answered = self._open[seq] = self._loop.create_future()
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(self._codec.call(seq, method, arguments))
        late = None if seconds is None else self._loop.call_later(seconds, self._late, seq, seconds)
        try:
            answer = await answered
        finally:
            self._open.pop(seq, None)
            if late is not None:
                late.cancel()
        if answer.error:
            raise RpcError(answer.error)
        try:
            return self._codec.reply(answer, kind)
        except (GobError, Mismatch) as error:
            raise RpcError(str(error)) from error

    def _late(self, seq: int, seconds: float) -> None:
        waiting = self._open.get(seq)
        if waiting is not None and not waiting.done():
            waiting.set_exception(OwnerSilent(f"{self._address} has not answered for {seconds:g} seconds"))

    def close(self) -> None:
        self.is_lost = True
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self.connected = self._loop.create_future()
        self._transport.write(CONNECT)

    def data_received(self, data: bytes) -> None:
        try:
            answers = self._codec.receive(data)
        except (GobError, Mismatch, HandshakeError) as error:
            self._fail(str(error))
            self._transport.close()
            return
        if not self.connected.done() and self._codec.is_connected:
            self.connected.set_result(None)
        for answer in answers:
            waiting = self._open.get(answer.seq)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail("the connection was lost")

    def _fail(self, reason: str) -> None:
        self.is_lost = True
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_exception(OwnerSilent(f"{self._address}: {reason} before the answer"))
        self._open.clear()
        if not self.connected.done():
            self.connected.set_exception(OSError(reason))
            self.connected.exception()  # if the attempt was given up, nothing else asks for it

    def _flush(self) -> None:
        if not self.is_lost:
            self._transport.write(b"".join(self._out))
        self._out.clear()


class RpcClient:
    """Calls from this node to the node at an address ("host:port")."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.lease_form = 0
        """The form of a lease request that the node understood last; see `RpcPeer`."""
        self._link: _Link | None = None
        self._connecting: asyncio.Task[_Link] | None = None

    async def call(
        self,
        method: str,
        arguments: msgspec.Struct,
        reply: type[S],
        *,
        seconds: float | None = ANSWER_SECONDS,
    ) -> S:
        """Call a method. Raise Unreached, OwnerSilent (sent, but not answered) or RpcError."""
        link = self._link
        if link is None or link.is_lost:
            link = await self._connected()
        return await link.call(method, arguments, reply, seconds)

    async def _connected(self) -> _Link:
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.ensure_future(self._connect())
        self._link = await asyncio.shield(self._connecting)
        return self._link

    async def _connect(self) -> _Link:
        host, _, port = self.address.rpartition(":")
        if not port.isdecimal():
            raise Unreached(f"{self.address!r} is no address of a node: host:port")
        link: _Link | None = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, link = await asyncio.get_running_loop().create_connection(
                    lambda: _Link(self.address), host.strip("[]") or "localhost", int(port)
                )
                await link.connected
        except (OSError, TimeoutError, OverflowError, UnicodeError) as error:
            if link is not None:
                link.close()
            reason = str(error) or "it does not answer"
            raise Unreached(f"{self.address} cannot be reached ({reason})") from error
        return link

    def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._link is not None:
            self._link.close()


class RpcClients:
    """Clients by address. When there are too many, the least recently used is closed."""

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._callers: dict[str, RpcClient] = {}

    def at(self, address: str) -> RpcClient:
        caller = self._callers.pop(address, None)
        if caller is None:
            caller = RpcClient(address)
            if len(self._callers) >= self._most:
                self._callers.pop(next(iter(self._callers))).close()
        self._callers[address] = caller
        return caller

    def close(self) -> None:
        for caller in self._callers.values():
            with contextlib.suppress(Exception):
                caller.close()
        self._callers.clear()
