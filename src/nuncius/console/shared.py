"""Share an answer among visitors for a moment, so that more visitors do not cost the store more."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    def __init__(self, ask: Callable[[], Awaitable[T]], seconds: float, respite: float = 0.0) -> None:
        """Share the answers of `ask` for `seconds`, or for `respite` times its duration if that is longer."""
        self._ask = ask
        self._seconds = seconds
        self._respite = respite
        self._until = float("-inf")
        self._asking = asyncio.Lock()

    async def __call__(self) -> T:
        loop = asyncio.get_running_loop()
        async with self._asking:
            begin = loop.time()
            if begin >= self._until:
                self._answer = await self._ask()
                end = loop.time()
                self._until = end + max(self._seconds, self._respite * (end - begin))
        return self._answer
