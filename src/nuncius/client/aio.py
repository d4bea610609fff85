"""The client, for asyncio. `Client` in `sync` has the same verbs for everybody else."""

import json
import time
from typing import Any

from nuncius.client.calls import TIMEOUT
from nuncius.client.queue_calls import QueueCalls
from nuncius.client.topic_calls import TopicCalls
from nuncius.wire import packets

__all__ = ["TIMEOUT", "AsyncClient"]


class AsyncClient(TopicCalls, QueueCalls):
    """A connection to a broker that repairs itself.

    Messages are counted under the `publisher` name, so that each is stored once, whatever breaks and is
    sent again. By default that name is made up and means nothing after this client is closed; a name of
    your own lets a restarted program go on counting where it stopped.
    """

    async def find_client(self, name: str) -> int:
        """The id under which messages can be addressed to a client."""
        answer = await self._call(packets.FindClient, name)
        number: int = answer.value
        return number

    async def ping(self) -> float:
        """Seconds to the node and back."""
        start = time.perf_counter()
        await self._call(packets.Ping)
        return time.perf_counter() - start

    async def status(self) -> dict[str, Any]:
        """A few facts about node and store."""
        answer = await self._call(packets.Status)
        facts: dict[str, Any] = json.loads(answer.json)
        return facts
