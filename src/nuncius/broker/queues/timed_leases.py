"""Leases for a time, for consumers without a lasting connection whose end would tell that they are gone.

A message is first leased to this node like any other. A second step replaces the node by an end time in the
store. So the consumer may ask any node next, this one may stop or die meanwhile, and the first node that
looks after the end time returns the message. If the consumer or the node is gone before the second step, the
first is undone as for every lease.
"""

from collections.abc import Callable, Sequence
from typing import Any

from nuncius.broker import future
from nuncius.broker.background.listener import Listener
from nuncius.broker.caller import NODE, Caller
from nuncius.broker.errors import InvalidInput, NotHeld
from nuncius.broker.limits import Limits
from nuncius.broker.queues.leases import clean
from nuncius.broker.queues.queues import Queues
from nuncius.store.calls.taking import Leased
from nuncius.store.store import Store

MAX_SHOWN = 100  # ids in a message of an error


class TimedLeases:
    def __init__(self, store: Store, queues: Queues, listener: Listener, limits: Limits) -> None:
        self._store = store
        self._queues = queues
        self._listener = listener
        self._limits = limits
        self.on_settled: Callable[[Caller, int], None] = lambda caller, count: None

    async def lease(
        self,
        queue_id: int,
        receiver: int = 0,
        *,
        seconds: float,
        limit: int = 1,
        wait: float = 0,
        caller: Caller = NODE,
    ) -> list[Leased]:
        """Lease up to `limit` messages for so many seconds, and wait up to `wait` for the first. When the
        caller is cancelled, they go back and no attempt is counted."""
        leased, done = future.new()

        def arrived(result: Any) -> None:
            if leased.cancelled() and not isinstance(result, Exception):
                self._give_up(result)
            else:
                done(result)

        waiter = self._queues.lease_soon(queue_id, receiver, arrived, limit=limit, wait=wait, caller=caller)
        try:
            found = await leased
            return await self._begin(found, seconds) if found else []
        except BaseException:
            self._queues.leave(waiter)
            if not leased.cancelled() and leased.done() and leased.exception() is None:
                self._give_up(leased.result())
            raise

    async def _begin(self, found: Sequence[Leased], seconds: float) -> list[Leased]:
        """Give leases an end time. Return those still held: a node that was considered dead has lost some."""
        ids = [one.lease_id for one in found]
        rows = await self._store.call("time_leases", self._listener.holder, ids, seconds)
        timed = set(rows[0][0])
        return [one for one in found if one.lease_id in timed]

    def _give_up(self, leased: Sequence[Leased]) -> None:
        if leased:
            self._queues.leases.give_up([one.lease_id for one in leased])

    async def settle(self, queue_id: int, lease_ids: Sequence[int], *, caller: Caller = NODE) -> None:
        """Acknowledge these leases. Raise NotHeld, and change nothing, if one of them is not held."""
        self._check(lease_ids)
        rows = await self._store.call_once("settle_timed", queue_id, lease_ids)
        _refuse_if_any(rows[0][0])
        self.on_settled(caller, len(set(lease_ids)))

    async def release(self, queue_id: int, lease_ids: Sequence[int], *, reason: str | None) -> None:
        """Have all of these redelivered: at once and uncounted without a reason, else as failed attempts."""
        self._check(lease_ids)
        retry = (self._limits.retry_delay, self._limits.max_attempts)
        released = (queue_id, lease_ids, clean(reason))
        ((ended, queues),) = await self._store.call_once("release_timed", *released, *retry)
        _refuse_if_any(ended)
        self._queues.leases.came_back(queues)
        if reason is not None:
            self._queues.leases.expect_retry()

    async def extend(self, queue_id: int, lease_ids: Sequence[int], seconds: float) -> None:
        """Extend all of these leases to so many seconds from now."""
        self._check(lease_ids)
        rows = await self._store.call_once("extend_timed", queue_id, lease_ids, seconds)
        _refuse_if_any(rows[0][0])

    def _check(self, lease_ids: Sequence[int]) -> None:
        if not 1 <= len(lease_ids) <= self._limits.max_batch:
            raise InvalidInput(f"name 1 to {self._limits.max_batch} leases")


def _refuse_if_any(ended: Sequence[int]) -> None:
    if ended:
        raise NotHeld(
            f"{some(ended)} not held in this queue (any more): the time was over, or it was settled or"
            " released before; nothing was changed"
        )


def some(lease_ids: Sequence[int]) -> str:
    """Return the ids as words for a sentence; of many, the first ones."""
    shown = ", ".join(map(str, lease_ids[:MAX_SHOWN]))
    more = len(lease_ids) - MAX_SHOWN
    if more > 0:
        shown += f" and {more} more"
    return f"lease {shown} is" if len(lease_ids) == 1 else f"leases {shown} are"
