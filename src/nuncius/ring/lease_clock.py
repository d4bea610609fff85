"""The time by which leases run, so that a test can be the one who lets it pass."""

import asyncio
import time


class Clock:
    def now(self) -> float:
        """Seconds that only ever go forward."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds that mean the same to the next process."""
        return time.time()

    async def sleep_until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - self.now()))
