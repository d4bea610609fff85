"""Track which topics have subscribers. The slim dialect tells a sender if a topic has none."""

import asyncio

from nuncius.broker import Broker

REMEMBER_SECONDS = 1.0
MOST = 10_000  # topics to remember


class Audience:
    """Known subscribers. Those of this node's slim connections are counted; others are looked up in the
    store, and the result is cached for a moment."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._here: dict[str, int] = {}
        self._seen: dict[str, float] = {}

    def come(self, topic: str) -> None:
        self._here[topic] = self._here.get(topic, 0) + 1

    def go(self, topic: str) -> None:
        self._here[topic] -= 1
        if not self._here[topic]:
            del self._here[topic]
            self._seen.pop(topic, None)

    def is_known(self, topic: str) -> bool:
        return topic in self._here or self._seen.get(topic, 0.0) > self._loop.time()

    async def is_there(self, topic: str) -> bool:
        if not self.is_known(topic):
            if not await self._broker.subscriptions.list(topic):
                return False
            if len(self._seen) >= MOST:
                self._seen.clear()
            self._seen[topic] = self._loop.time() + REMEMBER_SECONDS
        return True
