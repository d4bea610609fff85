"""The cluster as the store knows it: nodes, the brokers of partitions, the ring and its keys."""

from dataclasses import dataclass
from datetime import datetime

import msgspec

from nuncius.store.queries import query
from nuncius.store.store import Store

PLACEMENT = query("facts", "placement")
RING_NOTE = query("facts", "ring_note")
KEYS = query("facts", "keys")

SILENCE = 5.0  # seconds without a heartbeat after which a node counts as dead
KEYS_BOUND = 100_000


@dataclass(frozen=True, slots=True)
class NodeFacts:
    node_id: int
    host: str
    port: int
    """Of its HTTP door."""
    link_port: int | None
    roles: tuple[str, ...]
    broker_id: int | None
    store_id: int
    removed: bool
    started_at: datetime
    last_heard: datetime | None
    is_alive: bool
    partitions: int
    """Number of partitions that it serves as a broker."""

    @property
    def may_be_given_more(self) -> bool:
        return self.broker_id is not None and self.is_alive and not self.removed

    @property
    def state(self) -> str:
        """Return the state of the node, as it is shown everywhere."""
        if self.removed:
            return "removed"
        if self.is_alive:
            return "alive"
        if self.last_heard is not None:
            return "unreachable"
        return "expected" if self.link_port is None else "stopped"


@dataclass(frozen=True, slots=True)
class AssignedPartition:
    """A partition and its broker. `broker_id` is None if no broker is assigned."""

    topic: str
    partition: int
    store_id: int
    broker_id: int | None


@dataclass(frozen=True, slots=True)
class RingPlace:
    """A place on the circle of 2^32, and the node that owns the keys up to it."""

    place: int
    node: str
    share: float
    """Of the circle."""


@dataclass(frozen=True, slots=True)
class RingFacts:
    version: int
    places: tuple[RingPlace, ...]
    keys: int
    """Values and lists in this store; counted up to a bound."""
    items: int
    """In its lists; an estimate."""


class ClusterFactsReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def nodes(self) -> tuple[NodeFacts, ...]:
        rows = await self._store.call("list_nodes", SILENCE)
        return tuple(NodeFacts(**{**row, "roles": tuple(row["roles"])}) for row in rows)

    async def placement(self, limit: int = 1000) -> tuple[AssignedPartition, ...]:
        """List the partitions that have a broker or are in another store."""
        rows = await self._store.query(PLACEMENT, limit)
        return tuple(AssignedPartition(*row) for row in rows)

    async def ring(self) -> RingFacts | None:
        """Return the ring of keys that this store's node is in, if any."""
        rows = await self._store.query(RING_NOTE, "ring")
        if not rows:
            return None
        ring = msgspec.json.decode(rows[0][0])
        places = sorted((int(place), str(node)) for place, node in ring["places"])
        return RingFacts(
            ring["version"],
            tuple(
                RingPlace(place, node, _share(places[n - 1][0], place, len(places)))
                for n, (place, node) in enumerate(places)
            ),
            *await self.keys(),
        )

    async def keys(self) -> tuple[int, int]:
        """Return how many keys this store has, and about how many items in their lists."""
        rows = await self._store.query(KEYS, KEYS_BOUND)
        return rows[0][0], rows[0][1]


def _share(before: int, place: int, count: int) -> float:
    return 1.0 if count == 1 else ((place - before) % 2**32) / 2**32
