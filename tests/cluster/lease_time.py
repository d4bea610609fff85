"""Clocks for tests of leases: one that stands still until it is told, and one that runs fast."""

import asyncio
import time

from nuncius.ring.lease_clock import Clock


class ManualClock(Clock):
    def __init__(self, start: float = 1000.0) -> None:
        self._now = start
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return 1_000_000.0 + self._now

    async def sleep_until(self, moment: float) -> None:
        if moment > self._now:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._sleepers.append((moment, woken))
            await woken

    @property
    def sleepers(self) -> int:
        """How many wait for a moment."""
        return sum(not woken.done() for _, woken in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Lets time pass, and everybody act whose moment has come."""
        self._now += seconds
        for moment, woken in self._sleepers:
            if moment <= self._now and not woken.done():
                woken.set_result(None)
        self._sleepers = [each for each in self._sleepers if not each[1].done()]
        await settle()


class FastClock(Clock):
    """Time runs so many times as fast."""

    def __init__(self, speed: float) -> None:
        self._speed = speed

    def now(self) -> float:
        return time.monotonic() * self._speed

    async def sleep_until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - self.now()) / self._speed)


async def settle() -> None:
    """Lets everything run that can run without waiting."""
    for _ in range(20):
        await asyncio.sleep(0)
