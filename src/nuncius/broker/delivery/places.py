"""Where subscriptions stand, and putting them elsewhere."""

from collections.abc import Mapping
from datetime import datetime

from nuncius.broker.delivery.subscriptions import Subscription
from nuncius.broker.errors import InvalidInput
from nuncius.store.store import Store

POSITIONS = "select partition, position from nuncius.positions_of($1)"
# By partition: where the first entry is, where the next will be, and where the first of a time or later is.
ENDS = (
    "select partition, first_offset, nuncius.next_offset(partition_id),"
    " case when $2::timestamptz is not null then nuncius.offset_at(partition_id, $2) end"
    " from nuncius.partitions where topic_id = $1 order by partition"
)


class Places:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def of(self, subscription: Subscription) -> dict[int, int]:
        """The next offset to read, by partition."""
        rows = await self._store.query(POSITIONS, [subscription.subscription_id])
        return {row[0]: row[1] for row in rows}

    async def seek(self, subscription: Subscription, positions: Mapping[int, int]) -> None:
        """Puts a subscription at other positions, forward or back, all or none."""
        rows = await self._store.query(
            "select nuncius.seek($1, $2, $3)",
            subscription.subscription_id,
            list(positions),
            list(positions.values()),
        )
        wrong: int | None = rows[0][0]
        if wrong is not None:
            raise InvalidInput(f"topic {subscription.topic.name!r} has no such position in partition {wrong}")

    async def seek_earliest(self, subscription: Subscription) -> None:
        rows = await self._store.query(ENDS, subscription.topic.topic_id, None)
        await self.seek(subscription, {row[0]: row[1] for row in rows})

    async def seek_latest(self, subscription: Subscription) -> None:
        rows = await self._store.query(ENDS, subscription.topic.topic_id, None)
        await self.seek(subscription, {row[0]: row[2] for row in rows})

    async def seek_time(self, subscription: Subscription, time: datetime) -> None:
        """Before the first entry of each partition that arrived at that time or later."""
        rows = await self._store.query(ENDS, subscription.topic.topic_id, time)
        await self.seek(subscription, {row[0]: row[3] for row in rows})
