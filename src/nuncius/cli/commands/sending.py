"""Sending many messages: several groups at a time, in order, with progress on a terminal."""

import asyncio
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from nuncius.client import NunciusError

R = TypeVar("R")

UNDER_WAY = 8  # groups
PROGRESS_SECONDS = 0.2


class ProgressLine:
    """A progress line on stderr, shown only on a terminal."""

    def __init__(self, verb: str, *, wanted: bool) -> None:
        self._verb = verb
        self._shown = wanted and sys.stderr.isatty()
        self._begin = self._last = time.monotonic()
        self.count = 0

    def add(self, count: int) -> None:
        self.count += count
        now = time.monotonic()
        if self._shown and now - self._last >= PROGRESS_SECONDS:
            self._last = now
            rate = self.count / (now - self._begin)
            sys.stderr.write(f"\r{self.count:,} {self._verb}, {rate:,.0f}/s \x1b[K")
            sys.stderr.flush()

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


async def send_all(
    groups: AsyncIterator[list[bytes]],
    send: Callable[[list[bytes]], Awaitable[Sequence[R]]],
    stored: Callable[[Sequence[R]], None],
    progress: ProgressLine,
) -> None:
    """Send group after group. `stored` gets the receipts of each, in order."""
    under_way: deque[asyncio.Future[Sequence[R]]] = deque()

    async def settle_first() -> None:
        receipts = await under_way[0]
        under_way.popleft()
        progress.add(len(receipts))
        stored(receipts)

    try:
        async for group in groups:
            under_way.append(asyncio.ensure_future(send(group)))
            await asyncio.sleep(0)  # let the client send each group as a packet of its own
            while len(under_way) >= UNDER_WAY or (under_way and under_way[0].done()):
                await settle_first()
        while under_way:
            await settle_first()
    except NunciusError as error:
        if progress.count:
            raise type(error)(f"{error}; at least {progress.count:,} were stored before") from None
        raise
    finally:
        progress.end()
        await _abandon(under_way)


async def _abandon(futures: deque[Any]) -> None:
    for future in futures:
        future.cancel()
    await asyncio.gather(*futures, return_exceptions=True)
