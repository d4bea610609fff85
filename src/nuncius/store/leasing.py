"""Leases: settling and releasing what was taken with acknowledgement. Many calls become one."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from nuncius.store.combiner import Call
from nuncius.store.driver import Connection

SETTLE = "select nuncius.settle_many($1, $2)"
RELEASE = "select nuncius.release_many($1, $2, $3, $4, $5)"
RETURN = "select nuncius.return_leases($1, $2)"


class LeaseCall(Call):
    """Some leases of one consumer, and why they are given up (None: they were never delivered)."""

    __slots__ = ("ids", "reason")

    def __init__(
        self, done: Callable[[Any], None], caller: Hashable, ids: Sequence[int], reason: str | None = None
    ) -> None:
        # Doing it twice is doing it once: a lease that is not held any more is left alone.
        super().__init__(done, caller, None, len(ids), 50 * len(ids), True)
        self.ids = ids
        self.reason = reason


class Leasing:
    """What the procedures have to know besides: who holds, and how failed attempts are repeated."""

    def __init__(self, holder: Callable[[], int], retry_delay: float, max_attempts: int) -> None:
        self._holder = holder
        self._retry = (retry_delay, max_attempts)

    async def settle(self, connection: Connection, calls: Sequence[LeaseCall], _: bool) -> list[Any]:
        """Carries out a batch. Results: None."""
        await connection.fetchval(SETTLE, self._holder(), [each for call in calls for each in call.ids])
        return [None] * len(calls)

    async def release(self, connection: Connection, calls: Sequence[LeaseCall], _: bool) -> list[Any]:
        """Carries out a batch. Results: the queues that have something again, the same for all."""
        ids = [each for call in calls for each in call.ids]
        reasons = [call.reason for call in calls for _ in call.ids]
        queues = await connection.fetchval(RELEASE, self._holder(), ids, reasons, *self._retry)
        return [queues] * len(calls)
