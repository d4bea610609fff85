"""Data that only the nodes have, read over HTTP: message rates, latencies, connections.

Any worker of a node answers for all of them.
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
    """A node does not answer. The message says which one, and why."""


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """An answer of a node."""

    node: str
    said: dict[str, Any]


def address(node: NodeFacts) -> str:
    host = f"[{node.host}]" if ":" in node.host else node.host
    return f"{host}:{node.port}"


class NodeClient:
    def __init__(self, cluster: ClusterFactsReader) -> None:
        self._cluster = cluster
        # A kept connection would stay with one worker, which may hang.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.AsyncClient(
            timeout=ANSWER_SECONDS, trust_env=False, limits=limits, headers={"user-agent": "nuncius-console"}
        )
        self._asked: dict[str, Shared[Sequence[NodeAnswer]]] = {}

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(self, path: str) -> Sequence[NodeAnswer]:
        """Return the answers of all nodes that respond. Visitors share an answer for a second."""
        if path not in self._asked:
            self._asked[path] = Shared(partial(self._ask_all, path), FRESH_SECONDS)
        return await self._asked[path]()

    async def _ask_all(self, path: str) -> Sequence[NodeAnswer]:
        alive = [address(each) for each in await self._cluster.nodes() if each.is_alive and each.port]
        answers = await asyncio.gather(*(self._ask(node, path) for node in alive[:MOST_NODES]))
        return [answer for answer in answers if answer is not None]

    async def _ask(self, node: str, path: str) -> NodeAnswer | None:
        try:
            response = await self._http.get(f"http://{node}{path}")
            response.raise_for_status()
            return NodeAnswer(node, response.json())
        except (httpx.HTTPError, ValueError):
            return None

    async def consumers(self, of: str) -> Counter[int]:
        """Return the number of consumers of each queue or subscription, over all nodes."""
        found: Counter[int] = Counter()
        for answer in await self.ask(CONSUMERS):
            found.update({each["id"]: each["consumers"] for each in answer.said[of]})
        return found

    async def disconnect(self, node: str, connection: str) -> None:
        """Ask a node of the cluster to close a connection."""
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
