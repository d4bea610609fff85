"""Message traffic of all nodes together, now and in the last minutes with a visitor."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nuncius.console.nodes import STATS, NodeAnswer, NodeClient

KEPT = 60
KINDS = {
    "published": "Published",
    "put": "Put",
    "taken": "Taken",
    "delivered": "Delivered",
    "acked": "Acknowledged",
    "read": "Read",
}


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency of one kind of batch, in milliseconds; of several nodes, the slowest."""

    name: str
    batches: int
    rows: int
    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True, slots=True)
class Picture:
    """A snapshot of the traffic."""

    processes: int = 0
    silent: int = 0
    """Workers that did not answer their node, and are missing here."""
    rates: dict[str, float] = field(default_factory=dict)
    doors: dict[str, dict[str, float]] = field(default_factory=dict)
    """By listener: the number of connections, and the rates."""
    queues: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By queue: messages put and taken per second."""
    latencies: tuple[Latency, ...] = ()


class Traffic:
    def __init__(self, nodes: NodeClient) -> None:
        self._nodes = nodes
        self._seen: Sequence[NodeAnswer] | None = None
        self.picture = Picture()
        self.past: dict[str, deque[float]] = {kind: deque(maxlen=KEPT) for kind in KINDS}
        self._looking = asyncio.Lock()

    async def look(self) -> Picture:
        async with self._looking:
            answers = await self._nodes.ask(STATS)
            if self._seen is None or list(answers) != list(self._seen):
                self._seen = answers
                self.picture = combine([answer.said for answer in answers])
                for kind, values in self.past.items():
                    values.append(self.picture.rates.get(kind, 0.0))
        return self.picture


def combine(said: Sequence[dict[str, Any]]) -> Picture:
    """Combine the answers of several nodes into one snapshot."""
    rates = dict.fromkeys(KINDS, 0.0)
    doors: dict[str, dict[str, float]] = {}
    queues: dict[int, tuple[float, float]] = {}
    procedures: dict[str, list[dict[str, Any]]] = {}
    for one in said:
        for kind, amount in one["messages"].items():
            rates[kind] = rates.get(kind, 0.0) + amount["rate"]
        for name, door in one["doors"].items():
            sums = doors.setdefault(name, {"connections": 0.0})
            sums["connections"] += door["connections"]
            for kind, amount in door["messages"].items():
                sums[kind] = sums.get(kind, 0.0) + amount["rate"]
        for queue in one["queues"]:
            put, taken = queues.get(queue["queue_id"], (0.0, 0.0))
            queues[queue["queue_id"]] = (put + queue["put"], taken + queue["taken"])
        for procedure in one["procedures"]:
            procedures.setdefault(procedure["name"], []).append(procedure)
    return Picture(
        sum(len(one["processes"]) for one in said),
        sum(len(one["missing"]) for one in said),
        rates,
        doors,
        queues,
        tuple(_latency(*each) for each in sorted(procedures.items())),
    )


def _latency(name: str, said: Sequence[dict[str, Any]]) -> Latency:
    def worst(which: str) -> float | None:
        return max((each[which] for each in said if each.get(which) is not None), default=None)

    batches, rows = (sum(each[what] for each in said) for what in ("batches", "rows"))
    return Latency(name, batches, rows, worst("p50_ms"), worst("p95_ms"), worst("p99_ms"))
