"""Socket glue for TCP doors: one write per turn of the loop, and no reading from overloaded clients.

A session is what a protocol makes of the bytes. The wire calls it with what arrives and carries away what it
sends. It stops reading the socket while the client does not read its answers, while the client has too
much unanswered, or while the whole node has; what a client does not read counts in the node's budget.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, cast

from nuncius.broker.footprint import LARGE, LATE, NO_TRANSPORT, SMALL, STALLED, STOPPED, Footprint, cut_offs
from nuncius.broker.limits import Limits
from nuncius.broker.model import Pressure
from nuncius.doors.replies import Replies

MAX_UNANSWERED = 16 << 20  # bytes a connection
WRITE_BUFFER = 1 << 20


class Session(Protocol):
    def received(self, data: bytes) -> None:
        """Bytes arrived."""

    def lost(self) -> None:
        """The connection is gone."""

    async def finish(self) -> None:
        """Answer what was accepted, then `wire.close()`."""

    def break_off(self, reason: str) -> None:
        """Tell the client why in the protocol's own way, as far as it has one, then `wire.close()`."""


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
        limits: Limits,
    ) -> None:
        self._new_session = new_session
        self._pressure = pressure
        self._wires = wires
        self._limits = limits
        self._out: list[bytes] = []
        self._has_large = False  # one of them is
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
        self.is_greeted = False
        """Set by the session when the client has introduced itself, or sent its first request."""
        self.replies = Replies(pressure, self.is_stalled, self.writable, limits.max_body)
        self.on_writable: Callable[[], None] = _nobody_waits
        self.on_end: Callable[[], bool] = _nothing_is_owed
        """The client will not say more. True: the session still has answers for it, and closes afterwards."""

    # What sessions use

    def send(self, data: bytes) -> None:
        """Everything sent in one turn of the loop goes out as one write."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        if len(data) > LARGE:
            self._note_large(len(data))

    def answer(self, data: bytes, size: int) -> None:
        """Answers a request of that size. The last answer that is owed goes out at once: there is nothing
        left that could go with it."""
        self._out.append(data)
        if len(data) > LARGE:
            self._note_large(len(data))
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

    def abort(self) -> None:
        """Closes at once; what the client has not read is dropped."""
        self._closing = True
        self._out.clear()
        self._transport.abort()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._wires.add(self)
        self.since = self.heard = self._read_since = self._loop.time()
        self.footprint = Footprint(self._pressure, self._transport, self._passed, self._cut_off)
        self.session = self._new_session(self)
        if self._pressure.is_high:
            self._loop.call_soon(self._pause)  # the transport begins to read after this

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
            if self._pressure.is_high:
                self._pause()

    def eof_received(self) -> bool:
        return not self._closing and self.on_end()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._wires.discard(self)
        self._pressure.forget(self._resume)
        self._out.clear()
        self.footprint.end()
        self._transport = NO_TRANSPORT
        self._writable.set()
        self._gone.set()
        self.session.lost()

    def pause_writing(self) -> None:
        self._writable.clear()
        self._pause()

    def resume_writing(self) -> None:
        self.footprint.measure()
        self._writable.set()
        self._resume()
        self.on_writable()

    def _note_large(self, size: int) -> None:
        self._has_large = True
        if not self._closing:
            self.replies.sent(size)
            self.footprint.sent(size)

    def _flush(self) -> None:
        out = self._out
        if not out:
            return
        if self._closing:
            out.clear()
            return
        written = len(out[0]) if len(out) == 1 else sum(map(len, out))
        self.bytes_out += written
        if len(out) == 1:
            self._transport.write(out[0])
        elif self._has_large:
            self._transport.writelines(out)
        else:
            self._transport.write(b"".join(out))
        self._out = []
        self._has_large = False
        if written > SMALL or self.footprint.unread:
            self.footprint.measure()

    # Time and memory

    def look(self, now: float) -> None:
        """End the connection if it has run out of time; see `Watch`."""
        footprint, limits = self.footprint, self._limits
        footprint.look(now)
        if self._closing:
            if footprint.is_stuck(now):
                self.abort()
        elif footprint.is_stalled(now):
            footprint.cut_off(STALLED)
        elif not self.is_greeted:
            if self._reading and now - self._read_since > limits.greeting_seconds:
                footprint.cut_off(LATE)
        elif footprint.incomplete and self._reading and now - self.heard > limits.progress_seconds:
            footprint.cut_off(STOPPED)

    def _passed(self) -> int:
        return self.bytes_in + self.bytes_out

    def _cut_off(self, reason: str) -> None:
        cut_offs.note(self.door, self.peer, reason)
        if self.footprint.unread > SMALL:
            self.abort()  # a client that does not read cannot be told either
        else:
            self.session.break_off(reason)

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
        self.heard = self._read_since = self._loop.time()  # what came meanwhile has waited for us
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
