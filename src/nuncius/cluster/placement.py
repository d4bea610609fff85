"""Which broker serves which partition. PostgreSQL decides; nodes ask."""

from collections.abc import Sequence
from dataclasses import dataclass

from nuncius.store.store import Store


@dataclass(frozen=True, slots=True)
class Route:
    """A topic's partitions in order: in which store each is, and the number of the broker that serves it."""

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
        """Who serves a topic; partitions that nobody serves are given to healthy brokers, at random, and not
        to those that are lost, as far as this node knows."""
        route = await self._route(topic_id)
        if None in route.brokers and await self.place(topic_id, lost):
            route = await self._route(topic_id)
        return route

    async def place(self, topic_id: int, lost: Sequence[int] = ()) -> int:
        """Gives partitions that have no broker one. Answers how many."""
        rows = await self._store.query(
            "select nuncius.place_partitions($1, $2, $3)", topic_id, self.silence, lost
        )
        placed: int = rows[0][0]
        return placed

    async def reassign(self) -> int:
        """Gives what dead brokers served to others. Answers how many partitions that were."""
        rows = await self._store.query("select nuncius.reassign_partitions($1)", self.silence)
        changed: int = rows[0][0]
        return changed

    async def rebalance(self) -> int:
        """Spread the partitions of the common store evenly over the healthy brokers. Return how many changed
        hands."""
        rows = await self._store.query("select nuncius.rebalance_partitions($1)", self.silence)
        changed: int = rows[0][0]
        return changed

    async def elsewhere(self) -> dict[int, int]:
        """Partitions in other stores than the common one, and the store of each."""
        rows = await self._store.query("select partition_id, store_id from nuncius.partitions_elsewhere()")
        return {row[0]: row[1] for row in rows}

    async def tidy(self) -> None:
        await self._store.query("select nuncius.tidy_cluster()")

    async def _route(self, topic_id: int) -> Route:
        rows = await self._store.query("select * from nuncius.route_topic($1)", topic_id)
        columns = tuple(zip(*rows, strict=True)) if rows else ((), (), ())
        return Route(topic_id, *columns)
