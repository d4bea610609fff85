"""Background tasks. Their failures are logged."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import asyncpg

from nuncius.store.errors import StoreError

log = logging.getLogger(__name__)


class BackgroundWork:
    """Tasks that are kept until they end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], *, reported: bool = True) -> "asyncio.Task[Any]":
        """Start a task. `reported=False`: do not log its failure, because the caller handles it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended if reported else self._tasks.discard)
        return task

    async def drain(self) -> None:
        """Wait until there are no tasks left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StoreError | asyncpg.PostgresError | asyncpg.InterfaceError | OSError):
            log.warning("work in the background failed", extra={"error": str(error)})
        elif error is not None:
            log.error("work in the background failed by a fault of ours", exc_info=error)
