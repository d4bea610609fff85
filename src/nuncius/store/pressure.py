"""Backpressure: the memory that clients make a node use, kept within one budget.

Each byte counts once, as one of these: an accepted request without an answer (`add`), an incomplete request
or an answer that the client has not read yet (`hold`, by connection), or an answer that is being looked up,
by its expected size (`reserve`). As the budget fills:

- from a quarter of it held by connections, large answers are looked up one at a time;
- above half of it held by connections, none are, and connections without progress in a short time are
  disconnected; above three quarters those with the least progress;
- above three quarters of it in all, doors stop reading sockets until half of it is free.

So clients that do not read cannot use up the memory that well-behaved clients need.
"""

import asyncio
import ctypes
import gc
from collections import deque
from collections.abc import Callable
from typing import Protocol

BUDGET = 512 << 20
GLANCE_SECONDS = 0.25  # a connection whose client reads makes progress within this time
GIVE_BACK_SECONDS = 0.25


class Holder(Protocol):
    """A connection for which the node keeps bytes."""

    held: int

    def passed(self) -> int:
        """Return how many bytes the client has sent and read so far."""

    def cut_off(self, reason: str) -> None:
        """Disconnect the client. Afterwards the connection holds nothing."""


TOO_SLOW = "the node's memory is full, and this connection is among the slowest"


class Pressure:
    def __init__(self, budget: int = BUDGET) -> None:
        self.budget = budget
        self.level = 0
        """Bytes of all kinds."""
        self.held = 0
        """Bytes of incomplete requests, and of answers that are not read yet."""
        self._holders: dict[Holder, None] = {}
        self._waiting: dict[Callable[[], None], None] = {}
        self._reserved = 0
        self._look_ups: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._glance: asyncio.TimerHandle | None = None
        self._giving_back = False

    @property
    def is_high(self) -> bool:
        return self.level > self.budget * 3 // 4

    @property
    def is_full(self) -> bool:
        """Return True if connections hold so much that stalled ones are disconnected."""
        return self.held > self.budget // 4

    # Accepted requests

    def add(self, size: int) -> bool:
        """Add to the level. Return True if it is high now."""
        self.level += size
        return self.level > self.budget * 3 // 4

    def remove(self, size: int) -> None:
        self.level -= size
        if self._waiting:
            self._resume()

    def when_relieved(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, when the level has fallen to half of the budget."""
        self._waiting[resume] = None

    def forget(self, resume: Callable[[], None]) -> None:
        self._waiting.pop(resume, None)

    def _resume(self) -> None:
        if self.level <= self.budget // 2:
            waiting, self._waiting = self._waiting, {}
            for resume in waiting:
                resume()

    # Connections

    def hold(self, holder: Holder, more: int) -> None:
        """Add to the bytes that a connection holds. A negative number frees them."""
        holder.held += more
        self.held += more
        self.level += more
        if holder.held:
            self._holders[holder] = None
        else:
            self._holders.pop(holder, None)
        if more < 0:
            if self._look_ups:
                self._admit()
            if self._waiting:
                self._resume()
        elif self.held > self.budget // 2 and self._glance is None:
            self._begin_relief()

    def _begin_relief(self) -> None:
        marks = {each: each.passed() for each in self._holders}
        loop = asyncio.get_running_loop()
        self._glance = loop.call_later(GLANCE_SECONDS, self._relieve, marks)

    def _relieve(self, marks: dict[Holder, int]) -> None:
        """Disconnect the slowest connections since the marks; of equally slow ones, the largest first."""
        self._glance = None
        moved = {each: each.passed() - mark for each, mark in marks.items() if each in self._holders}
        for each in sorted(moved, key=lambda holder: (moved[holder], -holder.held)):
            if self.held <= self.budget * 3 // 8 or (moved[each] and self.held <= self.budget * 3 // 4):
                break
            each.cut_off(TOO_SLOW)
        if self.held > self.budget // 2:
            self._begin_relief()
        elif self._look_ups:
            self._admit()

    def give_back_soon(self) -> None:
        """Return the memory of a large connection that has ended to the operating system, soon."""
        if not self._giving_back:
            self._giving_back = True
            asyncio.get_running_loop().call_later(GIVE_BACK_SECONDS, self._give_back)

    def _give_back(self) -> None:
        """Collect reference cycles, which Python keeps for long, and trim the memory the C library keeps."""
        self._giving_back = False
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
        if trim is not None:
            trim(0)

    # Answers that are being looked up

    def try_reserve(self, size: int) -> bool:
        """Reserve room for an answer of about that size, if there is room at once."""
        if self._look_ups or not self._has_room(size):
            return False
        self._take(size)
        return True

    async def reserve(self, size: int) -> None:
        """Wait until there is room for an answer of about that size, then keep it free until `release`."""
        if self.try_reserve(size):
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._look_ups.append((size, admitted))
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.release(size)
            raise

    def release(self, size: int) -> None:
        """Free the room of an answer that was sent, or did not come."""
        self._reserved -= size
        self.level -= size
        if self._look_ups:
            self._admit()
        if self._waiting:
            self._resume()

    def _has_room(self, size: int) -> bool:
        """Return True if there is room. One answer at a time has room even when slow clients hold much."""
        if not self._reserved:
            return self.held <= self.budget // 2
        return self.held + self._reserved + size <= self.budget // 4

    def _take(self, size: int) -> None:
        self._reserved += size
        self.level += size

    def _admit(self) -> None:
        while self._look_ups:
            size, admitted = self._look_ups[0]
            if not admitted.done():
                if not self._has_room(size):
                    return
                self._take(size)
                admitted.set_result(None)
            self._look_ups.popleft()
