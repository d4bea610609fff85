"""The asyncio client. `Client` has the same methods for synchronous programs."""

import json
import time
from typing import Any

from nuncius.client.calls import TIMEOUT
from nuncius.client.queue_calls import QueueCalls
from nuncius.client.topic_calls import TopicCalls
from nuncius.wire import packets

__all__ = ["TIMEOUT", "AsyncClient"]


class AsyncClient(TopicCalls, QueueCalls):
    """A connection to a broker that reconnects by itself. Use it in an `async with` block, or call `open` and
    `close`.

    Messages are counted under the `publisher` name, so that each is stored once even if it is sent again
    after a failure. By default that name is generated and used by this client only. With a name of your own,
    a restarted program continues its counts.
    """

    async def find_client(self, name: str) -> int:
        """Return the id under which messages can be addressed to a client."""
        answer = await self._call(packets.FindClient, name)
        number: int = answer.value
        return number

    async def ping(self) -> float:
        """Measure the round trip to the node, in seconds."""
        start = time.perf_counter()
        await self._call(packets.Ping)
        return time.perf_counter() - start

    async def status(self) -> dict[str, Any]:
        """Return basic facts about the node and its store."""
        answer = await self._call(packets.Status)
        facts: dict[str, Any] = json.loads(answer.json)
        return facts
