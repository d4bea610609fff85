"""The memory that one connection makes the node use."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from nuncius.broker.caller import Caller
from nuncius.broker.limits import Limits
from nuncius.broker.model import Pressure

log = logging.getLogger(__name__)

SMALL = 4 << 10  # smaller answers are counted at the next check of all connections
LARGE = 64 << 10  # larger answers are counted at once, and not copied on their way
GIVEN_BACK = 256 << 10  # bytes that are returned to the operating system at once when a connection ends
MUCH = 16 << 10  # bytes that make a connection worth disconnecting
STALLED_SECONDS = 3.0  # without reading anything, while the node's memory is full
CLOSING_SECONDS = 10.0  # without reading anything, when the connection is to be closed
LOG_SECONDS = 10.0
LATE = "nothing that is complete has come in time"
STOPPED = "a request has begun and did not go on in time"
STALLED = "the node's memory is full, and this connection does not read its answers"


class Transport(Protocol):
    def get_write_buffer_size(self) -> int: ...


class Gone(asyncio.Transport):
    """Stand-in for a lost transport, so that the data written to the lost one can be freed."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None: ...

    def abort(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def write(self, data: object) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


NO_TRANSPORT = Gone()


class Footprint:
    """Bytes that one connection makes the node keep: of an incomplete request, of an open transaction, and
    of answers that the client has not read."""

    __slots__ = (
        "_cut_off",
        "_is_over",
        "_mark",
        "_moved_at",
        "_passed",
        "_pressure",
        "_transport",
        "held",
        "incomplete",
        "unread",
    )

    def __init__(
        self,
        pressure: Pressure,
        transport: Transport,
        passed: Callable[[], int],
        cut_off: Callable[[str], None],
    ) -> None:
        """Start at zero. `passed` returns how many bytes were read and written so far; `cut_off` ends the
        connection for a reason."""
        self._pressure = pressure
        self._transport = transport
        self._passed = passed
        self._cut_off = cut_off
        self._mark = 0
        self._moved_at = 0.0
        self._is_over = False
        self.held = 0
        self.incomplete = 0
        """Bytes received of an incomplete request; 0 if there is none."""
        self.unread = 0

    def begin(self, size: int) -> None:
        """Record the size of an incomplete request."""
        if size != self.incomplete:
            more, self.incomplete = size - self.incomplete, size
            self.keep(more)

    def keep(self, more: int) -> None:
        """Add to the bytes that the connection keeps, as for a transaction. A negative number frees them."""
        if not self._is_over:
            self._pressure.hold(self, more)

    def sent(self, size: int) -> None:
        """Count bytes that are about to be written."""
        self.unread += size
        self.keep(size)

    def measure(self) -> None:
        """Record how many written bytes the client has not read."""
        unread = self._transport.get_write_buffer_size()
        if unread != self.unread:
            more, self.unread = unread - self.unread, unread
            self.keep(more)

    def passed(self) -> int:
        """Return how many bytes the client has sent and read so far."""
        return self._passed() - self._transport.get_write_buffer_size()

    def look(self, now: float) -> None:
        """Measure, and note whether the connection has moved since the last look."""
        self.measure()
        passed = self._passed() - self.unread
        if passed != self._mark or not self.unread or not self._moved_at:
            self._moved_at = now
        self._mark = passed

    def check(
        self,
        now: float,
        limits: Limits,
        transport: asyncio.Transport,
        *,
        greeting_since: float | None,
        progress_since: float | None,
    ) -> None:
        """Look, and end the connection if it has run out of time. A first request is due since
        `greeting_since`; the last bytes of an incomplete one came at `progress_since`. None: none is due."""
        self.look(now)
        if transport.is_closing():
            if self.is_stuck(now):
                transport.abort()
        elif self.is_stalled(now):
            self.cut_off(STALLED)
        elif greeting_since is not None and now - greeting_since > limits.greeting_seconds:
            self.cut_off(LATE)
        elif progress_since is not None and now - progress_since > limits.progress_seconds:
            self.cut_off(STOPPED)

    def is_stalled(self, now: float) -> bool:
        """Return True if the client does not read and the node needs the memory."""
        unmoved = now - self._moved_at
        return unmoved > STALLED_SECONDS and self.held > MUCH and self._pressure.is_full

    def is_stuck(self, now: float) -> bool:
        """Return True if a closing connection has made no progress for too long."""
        return now - self._moved_at > CLOSING_SECONDS

    def cut_off(self, reason: str) -> None:
        self._cut_off(reason)
        self.clear()

    def end(self) -> None:
        """Release everything when the connection is lost."""
        self.clear()
        self._transport = NO_TRANSPORT

    def clear(self) -> None:
        """Stop counting a connection that is about to end."""
        if self.held > GIVEN_BACK:
            self._pressure.give_back_soon()
        if self.held:
            self._pressure.hold(self, -self.held)
        self._is_over = True


class CutOffs:
    """Log of connections that were disconnected: at most one line every few seconds."""

    def __init__(self) -> None:
        self._unsaid = 0
        self._quiet_until = 0.0

    def note(self, caller: Caller, peer: str, reason: str) -> None:
        self._unsaid += 1
        now = asyncio.get_running_loop().time()
        if now >= self._quiet_until:
            self._quiet_until = now + LOG_SECONDS
            count, self._unsaid = self._unsaid, 0
            details = {"door": caller.door, "peer": peer, "reason": reason, "connections": count}
            log.warning("a connection was cut off", extra={**details, "client": caller.client})


cut_offs = CutOffs()
