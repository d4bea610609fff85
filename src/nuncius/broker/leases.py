"""Leases: messages that consumers have to acknowledge."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from nuncius.broker import future
from nuncius.broker.limits import Limits
from nuncius.broker.listener import Listener
from nuncius.store.driver import Connection
from nuncius.store.leasing import RETURN, LeaseCall, Leasing
from nuncius.store.store import Store


class Leases:
    def __init__(
        self, store: Store, listener: Listener, limits: Limits, look_again: Callable[[int], None]
    ) -> None:
        leasing = Leasing(lambda: listener.holder, limits.retry_delay, limits.max_attempts)
        self._store = store
        self._listener = listener
        self._limits = limits
        self._look_again = look_again
        self._leasing = leasing
        self._settling = store.combiner("settle", leasing.settle)
        self._releasing = store.combiner("release", leasing.release)

    def settle_soon(
        self, lease_ids: Sequence[int], done: Callable[[Any], None], *, caller: Hashable = None
    ) -> None:
        """The consumer is done with these; `done` gets None or an exception."""
        self._settling.submit(LeaseCall(done, caller, lease_ids))

    def release_soon(
        self,
        lease_ids: Sequence[int],
        done: Callable[[Any], None],
        *,
        reason: str | None,
        caller: Hashable = None,
    ) -> None:
        """These were not taken. Without a reason they never reached the consumer and go back at once; else
        the attempt failed, and they come again after a while or become dead letters. `done` gets None or
        an exception."""

        def released(result: Any) -> None:
            if isinstance(result, Exception):
                done(result)
                return
            done(None)
            self.came_back(result)

        self._releasing.submit(LeaseCall(released, caller, lease_ids, reason))

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
        """The same as part of somebody's transaction; answers with the queues that have something again."""
        if settled:
            await self._leasing.settle(connection, [LeaseCall(_ignore, None, settled)], True)
        if not released:
            return []
        calls = [LeaseCall(_ignore, None, [each], reason) for each, reason in released]
        queues: Sequence[int] = (await self._leasing.release(connection, calls, True))[0]
        return queues

    async def return_due(self) -> int:
        """What waited long enough goes back into its queue, and what dead nodes held, too. Answers in how
        many queues there is something again."""
        rows = await self._store.query(RETURN, self._limits.retry_delay, self._limits.max_attempts)
        queues = rows[0][0] or []
        self.came_back(queues)
        return len(queues)

    def came_back(self, queue_ids: Sequence[int]) -> None:
        """These queues have something again."""
        for queue_id in dict.fromkeys(queue_ids):
            self._look_again(queue_id)
            self._listener.announce_queue(queue_id)


def _ignore(result: Any) -> None:
    """For calls whose answer is taken from the batch."""
