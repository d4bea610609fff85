"""Whether the store answers, for those who cannot wait for it."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from nuncius.broker.errors import StoreError


async def in_time(asked: Awaitable[None], seconds: float) -> bool:
    """Whether the store has answered. One that hangs does not let go of a question that is given up; nobody
    waits for that."""
    asking = asyncio.ensure_future(asked)
    await asyncio.wait([asking], timeout=seconds)
    if not asking.done():
        give_up(asking)
        return False
    try:
        asking.result()
    except StoreError:
        return False
    return True


def give_up(task: asyncio.Future[Any]) -> None:
    """Cancel a task without waiting for it, whatever becomes of it."""
    task.add_done_callback(_forget)
    task.cancel()


def _forget(asked: asyncio.Future[Any]) -> None:
    if not asked.cancelled():
        asked.exception()
