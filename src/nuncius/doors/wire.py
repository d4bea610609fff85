"""Connect sockets and sessions: one write per turn of the loop, and backpressure for overloaded clients.

A session implements a protocol. The wire passes it the bytes that arrive and writes the bytes that it sends.
The wire stops reading the socket while the client does not read its answers, while too many bytes of the
client's requests are unanswered, or while the whole node has too much to answer; bytes that a client does not
read count in the node's memory budget.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, cast

from nuncius.broker.caller import NODE
from nuncius.broker.footprint import LARGE, LATE, NO_TRANSPORT, SMALL, STALLED, STOPPED, Footprint, cut_offs
from nuncius.broker.limits import Limits
from nuncius.broker.model import Pressure
from nuncius.doors.replies import Replies

MAX_UNANSWERED = 16 << 20  # bytes a connection
WRITE_BUFFER = 1 << 20


class Session(Protocol):
    speaks: str
    """The protocol or dialect, as in the list of connections."""

    def received(self, data: bytes) -> None:
        """Handle bytes from the client."""

    def lost(self) -> None:
        """Handle the loss of the connection."""

    async def finish(self) -> None:
        """Answer the accepted requests, then call `wire.close()`."""

    def break_off(self, reason: str) -> None:
        """Send the reason as an error, if the protocol has one, then call `wire.close()`."""


def _nobody_waits() -> None:
    """Do nothing: the default of `on_writable`."""


def _nothing_is_owed() -> bool:
    """Return False, the default of `on_end`: the connection ends when the client closes its side."""
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
        self._has_large = False  # `_out` has an item over LARGE
        self._unanswered = 0
        self._reading = True
        self._closing = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._idle: asyncio.Event | None = None  # made by `all_answered`
        self._gone = asyncio.Event()
        self.number = 0
        """The connection's number within its listener."""
        self.caller = NODE  # until the listener knows the protocol
        self.bytes_in = self.bytes_out = 0
        self.is_greeted = False
        """True when the client has introduced itself, or sent its first request. Set by the session."""
        self.replies = Replies(pressure, self.is_stalled, self.writable, limits.max_body)
        self.on_writable: Callable[[], None] = _nobody_waits
        self.on_end: Callable[[], bool] = _nothing_is_owed
        """Called when the client has closed its side. Return True to send outstanding answers first; the
        session then closes."""

    # Used by sessions

    def send(self, data: bytes) -> None:
        """Send bytes. All bytes sent in one turn of the loop go out as one write."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        if len(data) > LARGE:
            self._note_large(len(data))

    def answer(self, data: bytes, size: int) -> None:
        """Answer a request of that size. The last outstanding answer goes out at once, because no other can
        join its write."""
        self._out.append(data)
        if len(data) > LARGE:
            self._note_large(len(data))
        if self._unanswered == size:
            self._flush()
        elif len(self._out) == 1:
            self._loop.call_soon(self._flush)
        self.answered(size)

    def accept(self, data: bytes, requests: int, each: int, incomplete: int) -> int:
        """Count the requests that these bytes completed as unanswered, `each` with so many bytes besides its
        own, and the bytes of an incomplete request. Return the size of the first request, which covers all of
        `data`; the others have the size `each`."""
        first = each + len(data)
        size = each * requests + len(data) if requests else 0
        self._unanswered += size
        if incomplete != self.footprint.incomplete:
            self.footprint.begin(incomplete)
        if self._pressure.add(size) or self._unanswered > MAX_UNANSWERED:
            self._pause()
        return first

    def answered(self, size: int) -> None:
        self._unanswered -= size
        self._pressure.remove(size)
        if self._idle is not None and not self._unanswered:
            self._idle.set()
            self._idle = None
        if not self._reading:
            self._resume()

    async def all_answered(self) -> None:
        if self._unanswered:
            if self._idle is None:
                self._idle = asyncio.Event()
            await self._idle.wait()

    async def gone(self) -> None:
        """Wait until the connection is closed and all sent bytes have left."""
        await self._gone.wait()

    async def writable(self) -> None:
        """Wait until the client has read enough of what it was sent."""
        await self._writable.wait()

    def is_stalled(self) -> bool:
        """Return whether the client has too much left to read. `on_writable` is called when that ends."""
        return not self._writable.is_set()

    def close(self) -> None:
        """Close the connection after all sent bytes have gone out."""
        self._flush()
        self._closing = True
        self._transport.close()

    def abort(self) -> None:
        """Close the connection at once and drop the bytes that the client has not read."""
        self._closing = True
        self._out.clear()
        self._transport.abort()

    # Called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport is not a subclass
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._wires.add(self)
        self.since = self.heard = self._read_since = self._loop.time()
        self.footprint = Footprint(self._pressure, self._transport, self._passed, self._cut_off)
        self.session = self._new_session(self)
        if self._pressure.is_high:
            self._loop.call_soon(self._pause)  # the transport begins to read after this

    @property
    def peer(self) -> str:
        """The client's address, HOST:PORT; empty if unknown."""
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
        """End the connection if it has run out of time; see `DeadlineWatch`."""
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
        cut_offs.note(self.caller, self.peer, reason)
        if self.footprint.unread > SMALL:
            self.abort()  # a client that does not read would not get the reason
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
        self.heard = self._read_since = self._loop.time()  # bytes that arrived during the pause were not read
        self._transport.resume_reading()


@dataclass(frozen=True, slots=True)
class WebSocketPath:
    """A protocol that is also spoken over WebSocket: its path, its subprotocol names, its sessions."""

    path: str
    subprotocols: tuple[str, ...]
    new_session: Callable[[Wire], Session]
    cut: Callable[[bytes], Iterable[bytes]]
    """Split the bytes that a session sends into messages."""
    wires: set[Wire]
    """The protocol's connections; its listener closes them."""
