"""Where subscriptions stand: everything below a position is confirmed."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from nuncius.broker.caller import NODE, Caller
from nuncius.broker.delivery.subscriptions import Subscription
from nuncius.broker.errors import InvalidInput, NoSuchSubscription
from nuncius.broker.limits import check_int64
from nuncius.store.calls.moving import (
    ENDS,
    NO_SUBSCRIPTION,
    NOT_PUBLISHED,
    POSITIONS,
    SEEK,
    MoveCall,
    advance,
    confirm,
)
from nuncius.store.store import Store


class Positions:
    """Move subscriptions, and tell where they stand.

    The moves of all callers share batches. Confirmations and moves from a known place have a connection
    each, so that a confirmation never waits for the lock of a consumer.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._confirm = store.combiner("confirm", confirm).submit
        self.advance = store.combiner("advance", advance).submit
        """Submit a MoveCall that moves a consumer past one entry, if it stands there."""

    def confirm_soon(
        self,
        subscription: Subscription,
        partition: int,
        position: int,
        done: Callable[[Any], None],
        *,
        caller: Caller = NODE,
    ) -> None:
        """Confirm everything below the position; `done` gets None or an exception."""
        check_int64("a position", position)

        def confirmed(code: Any) -> None:
            if code == NO_SUBSCRIPTION:
                code = NoSuchSubscription(
                    f"{subscription.subscriber!r} is not subscribed to {subscription.topic.name!r}"
                )
            elif code == NOT_PUBLISHED:
                code = InvalidInput(f"position {position} is beyond the end of the partition")
            done(code if isinstance(code, Exception) else None)

        partition_id = subscription.topic.partition_id(partition)
        self._confirm(MoveCall(confirmed, caller, subscription.subscription_id, partition_id, position))

    async def of(self, subscription: Subscription) -> dict[int, int]:
        """Return the next offset to read, by partition."""
        rows = await self._store.query(POSITIONS, [subscription.subscription_id])
        return {row[0]: row[1] for row in rows}

    async def seek(self, subscription: Subscription, positions: Mapping[int, int]) -> None:
        """Put a subscription at other positions, forward or back, all or none."""
        places = [*positions], [*positions.values()]
        rows = await self._store.query(SEEK, subscription.subscription_id, *places)
        wrong: int | None = rows[0][0]
        if wrong is not None:
            raise InvalidInput(f"topic {subscription.topic.name!r} has no such position in partition {wrong}")

    async def seek_earliest(self, subscription: Subscription) -> None:
        await self._seek_to(subscription, 1)

    async def seek_latest(self, subscription: Subscription) -> None:
        await self._seek_to(subscription, 2)

    async def seek_time(self, subscription: Subscription, time: datetime) -> None:
        """Seek to the first entry of each partition that arrived at that time or later."""
        await self._seek_to(subscription, 3, time)

    async def _seek_to(self, subscription: Subscription, column: int, time: datetime | None = None) -> None:
        rows = await self._store.query(ENDS, subscription.topic.topic_id, time)
        await self.seek(subscription, {row[0]: row[column] for row in rows})
