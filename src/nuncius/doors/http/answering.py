"""Check whether the store answers, within a deadline."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from nuncius.broker.errors import StoreError


async def in_time(asked: Awaitable[None], seconds: float) -> bool:
    """Return whether the store answers within `seconds`. A store that hangs may not end a cancelled query;
    the end of that is not awaited."""
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
    """Cancel a task without waiting for it. Its result or exception is ignored."""
    task.add_done_callback(_forget)
    task.cancel()


def _forget(asked: asyncio.Future[Any]) -> None:
    if not asked.cancelled():
        asked.exception()
