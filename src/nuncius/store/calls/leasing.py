"""Leases: settling and releasing leased messages. Many calls become one."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from nuncius.store.combiner.combiner import Call
from nuncius.store.driver import Connection

SETTLE = "select nuncius.settle_many($1)"
RELEASE = "select nuncius.release_many($1, $2, $3, $4)"
RECLAIM = "select nuncius.reclaim_leases($1, $2, $3)"
RETURN = "select moved, queues from nuncius.return_leases($1, $2, $3)"
TIME = "select nuncius.time_leases($1, $2, $3)"
SETTLE_TIMED = "select nuncius.settle_timed($1, $2)"
RELEASE_TIMED = "select ended, queues from nuncius.release_timed($1, $2, $3, $4, $5)"
EXTEND_TIMED = "select nuncius.extend_timed($1, $2, $3)"


class LeaseCall(Call):
    """Some leases of one consumer, and why they are released (None: they were never delivered)."""

    __slots__ = ("ids", "reason")

    def __init__(
        self, done: Callable[[Any], None], caller: Hashable, ids: Sequence[int], reason: str | None = None
    ) -> None:
        # Idempotent: a lease that is not held any more is left alone.
        super().__init__(done, caller, None, len(ids), 50 * len(ids), True)
        self.ids = ids
        self.reason = reason


async def settle(connection: Connection, calls: Sequence[LeaseCall], _: bool) -> list[Any]:
    """Carry out a batch. Results: None."""
    await connection.fetchval(SETTLE, [each for call in calls for each in call.ids])
    return [None] * len(calls)


class Releaser:
    """Releases leases, with the retry rules for failed attempts."""

    def __init__(self, retry_delay: float, max_attempts: int) -> None:
        self._retry = (retry_delay, max_attempts)

    async def release(self, connection: Connection, calls: Sequence[LeaseCall], _: bool) -> list[Any]:
        """Carry out a batch. Results: the queues that got messages back, all of them for the first call."""
        ids = [each for call in calls for each in call.ids]
        reasons = [call.reason for call in calls for _ in call.ids]
        queues = await connection.fetchval(RELEASE, ids, reasons, *self._retry)
        return [queues, *([] for _ in calls[1:])]
