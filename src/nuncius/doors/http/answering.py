"""Whether the store answers, for those who cannot wait for it."""

import asyncio
from collections.abc import Awaitable

from nuncius.broker.errors import StoreError


async def in_time(asked: Awaitable[None], seconds: float) -> bool:
    """Whether the store has answered. One that hangs does not let go of a question that is given up; nobody
    waits for that."""
    asking = asyncio.ensure_future(asked)
    await asyncio.wait([asking], timeout=seconds)
    if not asking.done():
        asking.add_done_callback(_forget)
        asking.cancel()
        return False
    try:
        asking.result()
    except StoreError:
        return False
    return True


def _forget(asked: asyncio.Future[None]) -> None:
    """Whatever became of it is of no interest."""
    if not asked.cancelled():
        asked.exception()
