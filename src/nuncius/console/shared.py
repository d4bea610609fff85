"""An answer that several visitors share for a moment, so that more of them do not cost the store more."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    def __init__(self, ask: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self._until = float("-inf")
        self._asking = asyncio.Lock()

    async def __call__(self) -> T:
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() >= self._until:
                self._answer = await self._ask()
                self._until = loop.time() + self._seconds
        return self._answer
