"""Leases: messages in flight to consumers that acknowledge."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from nuncius.broker import future
from nuncius.broker.background.listener import Listener
from nuncius.broker.errors import InvalidInput
from nuncius.broker.limits import Limits
from nuncius.store.calls.leasing import RECLAIM, RELEASE, RETURN, SETTLE, LeaseCall, Releaser, settle
from nuncius.store.calls.taking import Taker
from nuncius.store.driver import Connection
from nuncius.store.store import Store

LOST_SECONDS = 10.0  # how long the server may take to commit a call after its connection broke
MAX_REASON = 1000  # characters
RETRY_GRAIN = 0.02  # seconds: retries that are due within this time are returned together
MAX_EXPECTED = 1000  # timers for due retries; later retries wait for the next run of the duty


class Leases:
    def __init__(
        self,
        store: Store,
        listener: Listener,
        limits: Limits,
        leaser: Taker,
        look_again: Callable[[int], None],
    ) -> None:
        self._store = store
        self._listener = listener
        self._retry = (limits.retry_delay, limits.max_attempts)
        self._leaser = leaser
        self._look_again = look_again
        self._settling = store.combiner("settle", settle)
        self._releasing = store.combiner("release", Releaser(*self._retry).release)
        self.retry_is_due = asyncio.Event()
        """Set when the retry delay of a message that failed here is over."""
        self._expected = 0  # timers that will set it
        self._last_expected = 0.0
        self._untold: list[Callable[[], None]] = []  # calls that the store has not confirmed so far
        self._lost: dict[int, float] = {}  # by batch: until when to look for it

    def settle_soon(
        self, lease_ids: Sequence[int], done: Callable[[Any], None], *, caller: Hashable = None
    ) -> None:
        """Acknowledge these leases. `done` gets None or an exception."""
        self._settling.submit(LeaseCall(done, caller, lease_ids))

    def release_soon(
        self,
        lease_ids: Sequence[int],
        done: Callable[[Any], None],
        *,
        reason: str | None,
        caller: Hashable = None,
    ) -> None:
        """Return messages to their queue. Without a reason they never reached the consumer and go back at
        once. With one the delivery failed: they are redelivered after the retry delay or become dead letters.
        `done` gets None or an exception."""

        def released(result: Any) -> None:
            if isinstance(result, Exception):
                done(result)
                return
            self.came_back(result)
            if reason is not None:
                self.expect_retry()
            done(None)

        self._releasing.submit(LeaseCall(released, caller, lease_ids, clean(reason)))

    def give_up(self, lease_ids: Sequence[int], *, reason: str | None = None) -> None:
        """Release the leases of a consumer that has gone; without a reason, before it got them. Repeat until
        the store confirms: else they would be held as long as this node lives."""

        def given_up(result: Any) -> None:
            if isinstance(result, Exception):
                self._untold.append(partial(self.give_up, lease_ids, reason=reason))

        self.release_soon(lease_ids, given_up, reason=reason)

    def finish(self, lease_ids: Sequence[int]) -> None:
        """Acknowledge these leases, and repeat until the store confirms."""

        def finished(result: Any) -> None:
            if isinstance(result, Exception):
                self._untold.append(partial(self.finish, lease_ids))

        self.settle_soon(lease_ids, finished)

    async def settle(self, lease_ids: Sequence[int]) -> None:
        settled, done = future.new()
        self.settle_soon(lease_ids, done)
        await settled

    async def release(self, lease_ids: Sequence[int], *, reason: str | None) -> None:
        released, done = future.new()
        self.release_soon(lease_ids, done, reason=reason)
        await released

    async def carry_out(
        self, connection: Connection, settled: Sequence[int], released: Sequence[tuple[int, str]]
    ) -> Sequence[int]:
        """Settle and release in the caller's transaction. Return the queues that got messages back. Settled
        leases must still be held: else their messages are redelivered, and the transaction must fail."""
        if settled:
            found = await connection.fetchval(SETTLE, settled)
            if len(found) < len(set(settled)):
                raise InvalidInput(
                    "a message of this transaction does not wait for an acknowledgement any more"
                )
        if not released:
            return []
        ids, reasons = zip(*((each, clean(reason)) for each, reason in released), strict=True)
        queues: Sequence[int] = await connection.fetchval(RELEASE, ids, reasons, *self._retry)
        return queues

    def expect_retry(self) -> None:
        """Run the duty again when the retry delay of a message that has just failed is over."""
        loop = asyncio.get_running_loop()
        at = loop.time() + self._retry[0] + RETRY_GRAIN
        if at - self._last_expected >= RETRY_GRAIN and self._expected < MAX_EXPECTED:
            self._expected += 1
            self._last_expected = at
            loop.call_at(at, self._retry_due)

    def _retry_due(self) -> None:
        self._expected -= 1
        self.retry_is_due.set()

    async def return_due(self) -> int:
        """Return messages to their queues: after their retry delay, from dead nodes, and from leases whose
        time is over. Return how many those were."""
        untold, self._untold = self._untold, []
        for tell in untold:
            tell()
        await self._reclaim()
        total = 0
        while True:
            row = (await self._store.query(RETURN, *self._retry, self._listener.may_judge))[0]
            if not row["moved"]:
                return total
            total += row["moved"]
            for queue_id in set(row["queues"]):  # the store notifies other nodes
                self._look_again(queue_id)

    async def _reclaim(self) -> None:
        """Return the messages that were leased by calls whose answer was lost."""
        now = asyncio.get_running_loop().time()
        while self._leaser.lost:
            self._lost[self._leaser.lost.popleft()] = now + LOST_SECONDS
        if self._lost:
            rows = await self._store.query(RECLAIM, self._listener.holder, list(self._lost), self._retry[1])
            self.came_back(rows[0][0])
            self._lost = {batch: until for batch, until in self._lost.items() if until > now}

    def came_back(self, queue_ids: Sequence[int]) -> None:
        """Wake the readers of queues that got messages back, here and at other nodes."""
        for queue_id in dict.fromkeys(queue_ids):
            self._look_again(queue_id)
            self._listener.announce_queue(queue_id)


def clean(reason: str | None) -> str | None:
    """Make a client's reason storable: cut it, and replace NUL and lone surrogates, which PostgreSQL refuses.
    A failure must be recorded whatever its reason."""
    if reason is None:
        return None
    return reason[:MAX_REASON].replace("\0", " ").encode(errors="replace").decode()
