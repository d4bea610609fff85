"""The assignment of partitions to brokers. PostgreSQL decides; nodes ask."""

from collections.abc import Sequence
from dataclasses import dataclass

from nuncius.store.store import Store


@dataclass(frozen=True, slots=True)
class Route:
    """A topic's partitions in order: the store of each, and the number of the broker that serves it."""

    topic_id: int
    partition_ids: tuple[int, ...]
    stores: tuple[int, ...]
    brokers: tuple[int | None, ...]

    @property
    def is_common(self) -> bool:
        return all(store == 1 for store in self.stores)


class Placement:
    def __init__(self, store: Store, silence: float) -> None:
        self._store = store
        self.silence = silence

    async def route(self, topic_id: int, lost: Sequence[int] = ()) -> Route:
        """Return the route of a topic. Partitions without a broker are first assigned to healthy brokers, at
        random, except to those that this node has lost."""
        route = await self._route(topic_id)
        if None in route.brokers and await self.place(topic_id, lost):
            route = await self._route(topic_id)
        return route

    async def place(self, topic_id: int, lost: Sequence[int] = ()) -> int:
        """Assign partitions without a broker. Return how many were assigned."""
        rows = await self._store.call("place_partitions", topic_id, self.silence, lost)
        placed: int = rows[0][0]
        return placed

    async def reassign(self) -> int:
        """Assign the partitions of dead brokers to others. Return how many changed."""
        rows = await self._store.call("reassign_partitions", self.silence)
        changed: int = rows[0][0]
        return changed

    async def rebalance(self) -> int:
        """Spread the partitions of the common store evenly over the healthy brokers. Return how many
        moved."""
        rows = await self._store.call("rebalance_partitions", self.silence)
        changed: int = rows[0][0]
        return changed

    async def elsewhere(self) -> dict[int, int]:
        """Return the partitions that are not in the common store, with the store of each."""
        rows = await self._store.call("partitions_elsewhere")
        return {row[0]: row[1] for row in rows}

    async def tidy(self) -> None:
        await self._store.call("tidy_cluster")

    async def _route(self, topic_id: int) -> Route:
        rows = await self._store.call("route_topic", topic_id)
        columns = tuple(zip(*rows, strict=True)) if rows else ((), (), ())
        return Route(topic_id, *columns)
