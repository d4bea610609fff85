"""Answers that may be large are looked up a few at a time, and only while the client reads.

A request of thirty bytes can ask for a megabyte. A client that sends a thousand of them and reads nothing
would have a gigabyte waiting for it here, if all were looked up at once.
"""

import asyncio

from nuncius.doors.wire import Wire

AT_ONCE = 4


class LargeAnswers:
    """Enter it (`async with`) to look something large up for this connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._places = asyncio.Semaphore(AT_ONCE)

    async def __aenter__(self) -> None:
        await self._places.acquire()
        try:
            await self._wire.writable()
        except BaseException:
            self._places.release()
            raise

    async def __aexit__(self, *error: object) -> None:
        self._places.release()
