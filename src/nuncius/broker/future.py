"""Futures for callers that await. The path of messages uses callbacks, to need no task per message."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any


def new() -> tuple[asyncio.Future[Any], Callable[[Any], None]]:
    """Return a future and the callback that completes it with a result or an exception."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    return future, partial(complete, future)


def complete(future: asyncio.Future[Any], result: Any) -> None:
    """Complete a future with a result or an exception, unless it was cancelled."""
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
