"""A WebSocket that behaves like a TCP connection, so that sessions need not distinguish them.

The bytes that a session sends are split into the messages of its protocol: many clients expect one at a time,
and accept no more than a few kilobytes. They are sent as text if they are UTF-8, as browsers prefer, else as
binary. Backpressure works as on TCP: reading stops when the session asks for it, and the session is told when
the client does not read fast enough.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable

from starlette.websockets import WebSocket, WebSocketDisconnect

from nuncius.broker import Broker
from nuncius.doors.http.exchange import CONNECTION
from nuncius.doors.wire import WRITE_BUFFER, WebSocketPath, Wire


class WebSocketTransport(asyncio.Transport):
    def __init__(self, socket: WebSocket, cut: Callable[[bytes], Iterable[bytes]]) -> None:
        super().__init__({"peername": socket.client})
        self._socket = socket
        self._cut = cut
        self._waiting: deque[bytes] = deque()
        self._buffered = 0
        self._news = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._paused = False
        self._closing = False
        self._high = WRITE_BUFFER
        self.wire: Wire

    # Used by Wire

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = WRITE_BUFFER if high is None else high

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._waiting.extend(self._cut(bytes(data)))
        self._buffered += len(data)
        self._news.set()
        if self._buffered > self._high and not self._paused:
            self._paused = True
            self.wire.pause_writing()

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def get_write_buffer_size(self) -> int:
        return self._buffered

    def close(self) -> None:
        self._closing = True
        self._news.set()

    def abort(self) -> None:
        self._waiting.clear()
        self._buffered = 0
        self._socket.scope[CONNECTION].transport.abort()
        self.close()

    # Used by the endpoint

    async def receive(self) -> bytes:
        """Return the next message. Raise WebSocketDisconnect when there are no more."""
        await self._may_read.wait()
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        data: bytes | None = message.get("bytes")
        return message["text"].encode() if data is None else data

    async def send(self) -> None:
        """Send written data until the connection is closed from this side."""
        while True:
            while self._waiting:
                await self._socket.scope[CONNECTION].writable.wait()  # before data is copied
                data = self._waiting.popleft()
                try:
                    await self._socket.send_text(data.decode())
                except UnicodeDecodeError:
                    await self._socket.send_bytes(data)
                self._buffered -= len(data)
                del data
                if self._paused and self._buffered <= self._high // 4:
                    self._paused = False
                    self.wire.resume_writing()
            if self._closing:
                await self._socket.close()
                return
            self._news.clear()
            await self._news.wait()


async def carry(socket: WebSocket, path: WebSocketPath, broker: Broker) -> None:
    """Serve one connection, from its opening to its end."""
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(next((each for each in path.subprotocols if each in offered), None))
    transport = WebSocketTransport(socket, path.cut)
    wire = transport.wire = Wire(path.new_session, broker.pressure, path.wires, broker.limits)
    wire.connection_made(transport)
    sending = asyncio.ensure_future(transport.send())
    receiving = asyncio.ensure_future(_receive(transport, wire))
    try:
        await asyncio.wait([sending, receiving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        try:
            for task in (sending, receiving):
                task.cancel()
                # A client may disconnect in the middle of a message.
                with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect, RuntimeError, OSError):
                    await task
        finally:
            wire.connection_lost(None)


async def _receive(transport: WebSocketTransport, wire: Wire) -> None:
    while True:
        wire.data_received(await transport.receive())
