"""Background duties. Every node is ready to do them; PostgreSQL lets one node at a time."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

import asyncpg

from nuncius.broker.queues.leases import Leases
from nuncius.store.errors import StoreError
from nuncius.store.store import Store

log = logging.getLogger(__name__)

COLLECT_SECONDS = 5.0
TIDY_SECONDS = 60.0
RETURN_SECONDS = 1.0


class Duties:
    def __init__(
        self,
        store: Store,
        leases: Leases,
        *,
        collect_every: float = COLLECT_SECONDS,
        tidy_every: float = TIDY_SECONDS,
        return_every: float = RETURN_SECONDS,
    ) -> None:
        self._store = store
        self._tasks: list[asyncio.Task[None]] = []
        self._work: dict[str, tuple[float, Callable[[], Awaitable[int]], asyncio.Event]] = {}
        self.add("collect", collect_every, self.collect)
        self.add("tidy", tidy_every, self.tidy)
        self.add("return", return_every, leases.return_due, leases.retry_is_due)

    def add(
        self,
        duty: str,
        seconds: float,
        work: Callable[[], Awaitable[int]],
        sooner: asyncio.Event | None = None,
    ) -> None:
        """Add a duty, before the start. It runs every so many seconds, and whenever `sooner` is set.
        `work` returns how many items it has processed."""
        self._work[duty] = (seconds, work, sooner or asyncio.Event())

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._repeat(duty, *work)) for duty, work in self._work.items()]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def collect(self) -> int:
        """Apply retention, and remove the entries it has passed, until there is nothing left to do."""
        removed = 0
        while step := (await self._store.call("collect"))[0][0]:
            removed += step
        return removed

    async def tidy(self) -> int:
        rows = await self._store.call("tidy")
        return rows[0][0] or 0

    async def _repeat(
        self, duty: str, seconds: float, work: Callable[[], Awaitable[int]], sooner: asyncio.Event
    ) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await sooner.wait()
            sooner.clear()
            try:
                items = await work()
            except (StoreError, asyncpg.PostgresError) as error:
                log.warning("duty failed", extra={"duty": duty, "error": str(error)})
            except Exception:
                log.exception("a duty failed by a fault of ours", extra={"duty": duty})
            else:
                if items:
                    log.info("duty done", extra={"duty": duty, "items": items})
