"""Wake-ups for readers of topics. A reader watches its topic, looks, and looks again when it is called."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Signals:
    def __init__(self) -> None:
        self._versions: dict[int, int] = {}
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
        for topic_id in list(self._watching):
            self._wake(topic_id)

    def raise_for_catalogue(self) -> None:
        self.catalogue += 1
        self.raise_for_all()

    def watch(self, topic_id: int, call: Callable[[], None]) -> None:
        """Call whenever this topic may have new entries, until `unwatch`."""
        self._watching.setdefault(topic_id, set()).add(call)

    def unwatch(self, topic_id: int, call: Callable[[], None]) -> None:
        watching = self._watching.get(topic_id, set())
        watching.discard(call)
        if not watching:
            self._watching.pop(topic_id, None)

    @contextmanager
    def watching(self, topic_id: int) -> Iterator[asyncio.Event]:
        """Watch a topic with an event, which is set whenever it may have new entries."""
        news = asyncio.Event()
        self.watch(topic_id, news.set)
        try:
            yield news
        finally:
            self.unwatch(topic_id, news.set)

    def _wake(self, topic_id: int) -> None:
        for call in self._watching.get(topic_id, ()):
            call()


async def news_before(deadline: float, news: asyncio.Event) -> bool:
    """Wait for news. Return False if the deadline passes first."""
    if deadline <= asyncio.get_running_loop().time():
        return False
    try:
        async with asyncio.timeout_at(deadline):
            await news.wait()
    except TimeoutError:
        return False
    return True
