"""Reads of a connection take turns: nobody knows how large an answer is before it is there.

A client may ask for a large value a thousand times, and read nothing. So only so many reads are worked on at
once as their answers should fit into PORTION, judging by those before, and none while the client does not
read. Whatever the answers are, all reads of a client with small ones are worked on together.
"""

import asyncio

from nuncius.doors.wire import Wire

PORTION = 4 << 20  # bytes of answers
FIRST = 512 << 10  # bytes, expected of the first answers
LEAST = 4 << 10


class Turns:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._expected = FIRST
        self._open = 0
        self._gate = asyncio.Lock()  # the next in turn holds it
        self._room = asyncio.Event()

    async def begin(self) -> None:
        async with self._gate:
            await self._wire.writable()
            while self._open and (self._open + 1) * self._expected > PORTION:
                self._room.clear()
                await self._room.wait()
            self._open += 1

    def end(self, size: int) -> None:
        """The answer has gone out and was so large, or there was none."""
        self._open -= 1
        self._expected = max(size, LEAST, self._expected * 7 // 8)
        self._room.set()
