"""Socket glue for TCP doors: one write per turn of the loop, and no reading from who cannot be served.

A session is what a protocol makes of the bytes. The wire calls it with what arrives and carries away what it
sends. It stops reading the socket while the client does not read its answers, while the client has too
much unanswered, or while the whole node has; memory is bounded by that.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, cast

from nuncius.broker.model import Pressure

MAX_UNANSWERED = 16 << 20  # bytes a connection
WRITE_BUFFER = 1 << 20


class Session(Protocol):
    def received(self, data: bytes) -> None:
        """Bytes arrived."""

    def lost(self) -> None:
        """The connection is gone."""

    async def finish(self) -> None:
        """Answer what was accepted, then `wire.close()`."""


def _nobody_waits() -> None:
    """For sessions that do not want to know."""


def _nothing_is_owed() -> bool:
    """For sessions that end with what the client has to say."""
    return False


class Wire(asyncio.Protocol):
    def __init__(
        self,
        new_session: Callable[["Wire"], Session],
        pressure: Pressure,
        wires: set["Wire"],
    ) -> None:
        self._new_session = new_session
        self._pressure = pressure
        self._wires = wires
        self._out: list[bytes] = []
        self._unanswered = 0
        self._reading = True
        self._closing = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._gone = asyncio.Event()
        self.known_as = ""
        """The name by which the other side introduced itself, where its session does not know it."""
        self.door = ""
        self.number = 0
        """Which of its door's connections it is."""
        self.bytes_in = self.bytes_out = 0
        self.on_writable: Callable[[], None] = _nobody_waits
        self.on_end: Callable[[], bool] = _nothing_is_owed
        """The client will not say more. True: the session still has answers for it, and closes afterwards."""

    # What sessions use

    def send(self, data: bytes) -> None:
        """Everything sent in one turn of the loop goes out as one write."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def answer(self, data: bytes, size: int) -> None:
        """Answers a request of that size. The last answer that is owed goes out at once: there is nothing
        left that could go with it."""
        self._out.append(data)
        self.answered(size)
        if not self._unanswered:
            self._flush()
        elif len(self._out) == 1:
            self._loop.call_soon(self._flush)

    def accept(self, size: int) -> None:
        """A request of about that size has to be answered."""
        self._unanswered += size
        self._pressure.add(size)
        self._idle.clear()
        if self._unanswered > MAX_UNANSWERED or self._pressure.is_high:
            self._pause()

    def answered(self, size: int) -> None:
        self._unanswered -= size
        self._pressure.remove(size)
        if not self._unanswered:
            self._idle.set()
        if not self._reading:
            self._resume()

    async def all_answered(self) -> None:
        await self._idle.wait()

    async def gone(self) -> None:
        """Returns when the connection is closed and what was sent has left."""
        await self._gone.wait()

    async def writable(self) -> None:
        """Returns when the client has read enough of what it was sent."""
        await self._writable.wait()

    def is_stalled(self) -> bool:
        """Whether the client has not read enough of what it was sent; `on_writable` is called when it has."""
        return not self._writable.is_set()

    def close(self) -> None:
        """Closes after what was sent has gone out."""
        self._flush()
        self._closing = True
        self._transport.close()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._wires.add(self)
        self.since = self.heard = self._loop.time()
        self.session = self._new_session(self)

    @property
    def peer(self) -> str:
        """Where the other side is."""
        name = self._transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if name else ""

    def data_received(self, data: bytes) -> None:
        self.bytes_in += len(data)
        self.heard = self._loop.time()
        if not self._closing:
            self.session.received(data)

    def eof_received(self) -> bool:
        return not self._closing and self.on_end()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._wires.discard(self)
        self._pressure.forget(self._resume)
        self._writable.set()
        self._gone.set()
        self.session.lost()

    def pause_writing(self) -> None:
        self._writable.clear()
        self._pause()

    def resume_writing(self) -> None:
        self._writable.set()
        self._resume()
        self.on_writable()

    def _flush(self) -> None:
        if self._out:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            if not self._closing:
                self.bytes_out += len(data)
                self._transport.write(data)

    def _pause(self) -> None:
        if self._reading and not self._closing:
            self._reading = False
            self._transport.pause_reading()
        if self._pressure.is_high:
            self._pressure.when_relieved(self._resume)

    def _resume(self) -> None:
        if self._reading or self._closing or not self._writable.is_set():
            return
        if self._unanswered > MAX_UNANSWERED // 2:
            return
        if self._pressure.is_high:
            self._pressure.when_relieved(self._resume)
            return
        self._reading = True
        self._transport.resume_reading()


@dataclass(frozen=True, slots=True)
class WebSocketPath:
    """A protocol that is also spoken over WebSocket: where, under which names, and who answers."""

    path: str
    subprotocols: tuple[str, ...]
    new_session: Callable[[Wire], Session]
    cut: Callable[[bytes], Iterable[bytes]]
    """What a session sends, cut into messages."""
    wires: set[Wire]
    """Its connections; whoever owns the protocol ends them."""
