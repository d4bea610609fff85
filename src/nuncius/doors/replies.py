"""Limit concurrent lookups of large answers to what the client and the node have memory for.

A request of thirty bytes can ask for eight megabytes, and the size of an answer is unknown before it is
looked up. So a connection looks up only as many answers at a time as are expected to fit into PORTION, going
by the sizes of the last ones; none while the client does not read, and none that the node's memory has no
room for. A connection whose answers are small looks up all of them together.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from nuncius.broker.model import Pressure

PORTION = 4 << 20  # bytes of answers
COPIES = 3  # of an answer during its lookup: as the store sends it, as entries, and as a frame
LEAST = 4 << 10  # bytes, the least that an answer is expected to have


class Replies:
    """Context manager of a lookup: enter it (`async with`) to look up an answer, leave it when about to send
    that."""

    def __init__(
        self,
        pressure: Pressure,
        is_stalled: Callable[[], bool],
        writable: Callable[[], Awaitable[None]],
        first: int,
    ) -> None:
        """`is_stalled` tells whether the client has much to read; `writable` waits until it has not. `first`
        is the expected size of the first answer."""
        self._pressure = pressure
        self._is_stalled = is_stalled
        self._writable = writable
        self._loop = asyncio.get_running_loop()  # kept, because looking it up is a system call on Python 3.11
        self._expected = first
        self._largest = self._largest_before = 0  # sizes seen in this period and in the one before
        self._open: deque[int] = deque()  # bytes reserved for each lookup under way
        self._gate = asyncio.Lock()  # held by the next lookup in turn
        self._room = asyncio.Event()

    def sent(self, size: int) -> None:
        """Note the size of an answer; small ones need not be noted."""
        self._largest = max(self._largest, size)

    async def __aenter__(self) -> None:
        if self._gate.locked() or self._is_stalled() or not self._fits() or not self._reserve():
            async with self._gate:
                await self._writable()
                while not self._fits():
                    self._room.clear()
                    await self._room.wait()
                size = COPIES * self._expected
                await self._pressure.reserve(size)
                self._open.append(size)

    async def __aexit__(self, *error: object) -> None:
        # The answer is sent in this turn of the loop or in the next; its memory stays reserved until then.
        self._loop.call_soon(self._loop.call_soon, self._end)

    def _fits(self) -> bool:
        return not self._open or (len(self._open) + 1) * self._expected <= PORTION

    def _reserve(self) -> bool:
        """Reserve memory for an answer without waiting. Return False if there is not enough."""
        size = COPIES * self._expected
        if self._pressure.try_reserve(size):
            self._open.append(size)
            return True
        return False

    def _end(self) -> None:
        self._pressure.release(self._open.popleft())
        self._expected = max(self._largest, self._largest_before, LEAST, self._expected // 8)
        self._largest, self._largest_before = 0, self._largest
        self._room.set()
