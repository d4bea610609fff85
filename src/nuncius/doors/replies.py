"""Answers that may be large: looked up in turn, as many at once as the client and the node have room for.

A request of thirty bytes can ask for eight megabytes, and nobody knows how large an answer is before it is
there. So only so many are looked up at once for a connection as should fit into PORTION, judging by those
before, none while the client does not read, and none for which the node's memory has no room. A connection
whose answers are small has all of them looked up together.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from nuncius.broker.model import Pressure

PORTION = 4 << 20  # bytes of answers
COPIES = 3  # of an answer while it is looked up: as the store sends it, as entries, and as a frame
LEAST = 4 << 10  # bytes that the smallest answer is expected to have


class Replies:
    """Enter it (`async with`) to look up an answer, and leave it when the answer is about to be sent."""

    def __init__(
        self,
        pressure: Pressure,
        is_stalled: Callable[[], bool],
        writable: Callable[[], Awaitable[None]],
        first: int,
    ) -> None:
        """`is_stalled` tells whether the client has much to read, `writable` waits until it has not.
        `first` is how large the first answer may be."""
        self._pressure = pressure
        self._is_stalled = is_stalled
        self._writable = writable
        self._loop = asyncio.get_running_loop()  # kept: asking for it costs a system call on Python 3.11
        self._expected = first
        self._largest = self._largest_before = 0  # since the last answers ended
        self._open: deque[int] = deque()  # how much is reserved for each that is being looked up
        self._gate = asyncio.Lock()  # the next in turn holds it
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
        # The answer is sent in this turn of the loop or in the next one; until then its room is kept.
        self._loop.call_soon(self._loop.call_soon, self._end)

    def _fits(self) -> bool:
        return not self._open or (len(self._open) + 1) * self._expected <= PORTION

    def _reserve(self) -> bool:
        """Reserve room for an answer if there is some at once."""
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
