"""Wake-ups for readers of topics. A reader notes the topic's version, looks, and waits for the next one."""

import asyncio
from collections.abc import Callable


class Signals:
    def __init__(self) -> None:
        self._versions: dict[int, int] = {}
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        self._watching: dict[int, set[Callable[[], None]]] = {}
        self._everything = 0
        self.catalogue = 0  # goes up when topics, queues or subscriptions come or go

    def version(self, topic_id: int) -> int:
        return self._versions.get(topic_id, 0) + self._everything

    def raise_for(self, topic_id: int) -> None:
        """Wake the readers of a topic that has new entries."""
        self._versions[topic_id] = self._versions.get(topic_id, 0) + 1
        self._wake(topic_id)

    def raise_for_all(self) -> None:
        """Wake all readers: any topic may have new entries."""
        self._everything += 1
        for topic_id in {*self._waiting, *self._watching}:
            self._wake(topic_id)

    def raise_for_catalogue(self) -> None:
        self.catalogue += 1
        self.raise_for_all()

    async def wait(self, topic_id: int, version: int, seconds: float | None) -> bool:
        """Wait until the topic's version is another than this. Return False if the time is over first."""
        if self.version(topic_id) != version:
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(topic_id, set())
        waiting.add(future)
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        finally:
            waiting.discard(future)
            if not waiting and self._waiting.get(topic_id) is waiting:
                del self._waiting[topic_id]
        return True

    def watch(self, topic_id: int, call: Callable[[], None]) -> None:
        """Call whenever this topic may have new entries, until `unwatch`."""
        self._watching.setdefault(topic_id, set()).add(call)

    def unwatch(self, topic_id: int, call: Callable[[], None]) -> None:
        watching = self._watching.get(topic_id, set())
        watching.discard(call)
        if not watching:
            self._watching.pop(topic_id, None)

    def _wake(self, topic_id: int) -> None:
        for call in self._watching.get(topic_id, ()):
            call()
        for future in self._waiting.pop(topic_id, ()):
            if not future.done():
                future.set_result(None)
