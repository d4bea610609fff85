"""What only the nodes know, asked of each over HTTP: how much passes through, how fast, and who is there.

A node answers for all its workers, whichever of them is asked.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx

from nuncius.broker.observe.facts_cluster import ClusterFactsReader, NodeFacts
from nuncius.console.shared import Shared

ANSWER_SECONDS = 4.0  # longer than a node waits for its workers
FRESH_SECONDS = 1.0
MOST_NODES = 50
STATS = "/v1/stats?seconds=5"
CONNECTIONS = "/v1/connections"
RING = "/v1/ring"
CONSUMERS = "/v1/consumers"


class NodeDoesNotAnswer(Exception):
    """The message says which, and why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node said."""

    node: str
    said: dict[str, Any]


def address(node: NodeFacts) -> str:
    host = f"[{node.host}]" if ":" in node.host else node.host
    return f"{host}:{node.port}"


class Nodes:
    def __init__(self, cluster: ClusterFactsReader) -> None:
        self._cluster = cluster
        # A connection is one worker's: who keeps none is not left with one that hangs.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.AsyncClient(
            timeout=ANSWER_SECONDS, trust_env=False, limits=limits, headers={"user-agent": "nuncius-console"}
        )
        self._asked: dict[str, Shared[Sequence[Answer]]] = {}

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(self, path: str) -> Sequence[Answer]:
        """What all nodes that answer say; all who look within a second see the same."""
        if path not in self._asked:
            self._asked[path] = Shared(partial(self._ask_all, path), FRESH_SECONDS)
        return await self._asked[path]()

    async def _ask_all(self, path: str) -> Sequence[Answer]:
        alive = [address(each) for each in await self._cluster.nodes() if each.is_alive and each.port]
        answers = await asyncio.gather(*(self._ask(node, path) for node in alive[:MOST_NODES]))
        return [answer for answer in answers if answer is not None]

    async def _ask(self, node: str, path: str) -> Answer | None:
        try:
            response = await self._http.get(f"http://{node}{path}")
            response.raise_for_status()
            return Answer(node, response.json())
        except (httpx.HTTPError, ValueError):
            return None

    async def consumers(self, of: str) -> Counter[int]:
        """How many consumers queues or subscriptions have at all nodes together, by number."""
        found: Counter[int] = Counter()
        for answer in await self.ask(CONSUMERS):
            found.update({each["id"]: each["consumers"] for each in answer.said[of]})
        return found

    async def disconnect(self, node: str, connection: str) -> None:
        """Asks a node to close a connection. Only nodes of the cluster are asked."""
        if node not in {address(each) for each in await self._cluster.nodes()}:
            raise NodeDoesNotAnswer(f"there is no node {node}")
        try:
            response = await self._http.delete(f"http://{node}{CONNECTIONS}/{quote(connection, safe='')}")
        except httpx.HTTPError as error:
            raise NodeDoesNotAnswer(f"node {node} does not answer ({type(error).__name__})") from error
        if response.status_code == httpx.codes.NOT_FOUND:
            raise NodeDoesNotAnswer(f"connection {connection} of {node} is gone already")
        if response.is_error:
            raise NodeDoesNotAnswer(f"node {node} refused: {response.text[:200]}")
        self._asked.pop(CONNECTIONS, None)
