"""The clock for leases; tests replace it."""

import asyncio
import time


class Clock:
    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def wall(self) -> float:
        """Return wall-clock seconds, which later processes can compare."""
        return time.time()

    async def sleep_until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - self.now()))
