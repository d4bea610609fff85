"""A consumer of a queue. It competes with all other consumers, of every node.

One task per subscription leases messages, as many as the client may have unacknowledged, and sends them.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nuncius.broker import future
from nuncius.broker.model import Leased, Queue, Transaction, Waiter
from nuncius.broker.observe.consumers import Consumed
from nuncius.doors.stomp.frames.rendering import message_id, message_tail, now_ms, redelivery_lines
from nuncius.doors.stomp.subscriptions.consumer import StompConsumer
from nuncius.doors.stomp.subscriptions.unacknowledged import Delivery, Unacknowledged

LEASE_SECONDS = 3600.0  # how long to wait for a message before asking again
LEASE_MESSAGES = 500  # at a time
CATCH_UP_MESSAGES = 1000
LEASE_BYTES = 1 << 20  # at a time, estimated from the last batch


class QueueSubscription:
    def __init__(self, consumer: StompConsumer, queue: Queue, prefetch: int) -> None:
        self._consumer = consumer
        self._queue = queue
        self._prefetch = prefetch
        self._unacknowledged: Unacknowledged[int] = Unacknowledged(cumulative=consumer.is_cumulative)
        self._typical_size = 1000
        self._room_made = asyncio.Event()
        self._waiter: Waiter | None = None
        self._is_over = False
        self._consumed = Consumed(consumer.broker.consumers)

    def start(self) -> None:
        self._consumed.note(self._queue.queue_id)
        self._consumer.background.start(self._run())

    # Sending

    async def _run(self) -> None:
        try:
            while not self._is_over:
                if len(self._unacknowledged) >= self._prefetch:
                    self._room_made.clear()
                    await self._room_made.wait()
                    continue
                await self._consumer.carrier.writable()
                self._deliver(await self._lease())
        except Exception as error:
            self._consumer.ended(error)

    async def _lease(self) -> Sequence[Leased]:
        if self._is_over:
            return ()
        leased, done = future.new()
        self._waiter = self._consumer.broker.queues.lease_soon(
            self._queue.queue_id,
            0,
            done,
            limit=self._limit(),
            wait=LEASE_SECONDS,
            caller=self._consumer.carrier.caller,
        )
        return await leased  # type: ignore[no-any-return]

    def _limit(self) -> int:
        room = self._prefetch - len(self._unacknowledged)
        return max(1, min(room, LEASE_MESSAGES, LEASE_BYTES // self._typical_size))

    def _deliver(self, leased: Sequence[Leased]) -> None:
        if self._is_over:
            self._give_up([one.lease_id for one in leased], None)
            return
        frames, done_with, now = [], [], now_ms()
        for one in leased:
            tail, expires = message_tail(one, self._consumer.version)
            if expires and expires <= now:
                done_with.append(one.lease_id)
                continue
            frames.append(self._consumer.head)
            if self._consumer.is_acknowledged:
                ack_id, line = self._consumer.ack_id(str(one.lease_id), message_id(one))
                self._unacknowledged.add(ack_id, one.lease_id)
                frames.append(line)
            else:
                done_with.append(one.lease_id)
            if one.attempts or one.origin != one.lease_id:
                frames.append(redelivery_lines(one.attempts))
            frames.append(tail)
        if frames:
            self._consumer.carrier.send(b"".join(frames))
            self._typical_size = max(1, sum(map(len, frames)) // len(leased))
        if done_with:
            self._consumer.broker.leases.finish(done_with, caller=self._consumer.carrier.caller)

    # Acknowledgements

    def __contains__(self, ack_id: str) -> bool:
        return ack_id in self._unacknowledged

    def claim(self, ack_id: str, *, by_transaction: bool) -> list[Delivery[int]]:
        return self._unacknowledged.claim(ack_id, by_transaction=by_transaction)

    def acknowledge(
        self, claimed: Sequence[Delivery[int]], reason: str | None, done: Callable[[Any], None]
    ) -> None:
        """Settle the claimed messages, or release them as failed if there is a reason."""
        leases = [delivery.place for delivery in claimed]
        finish = partial(self._acknowledged, claimed, done)
        caller = self._consumer.carrier.caller
        if reason is None:
            self._consumer.broker.leases.settle_soon(leases, finish, caller=caller)
        else:
            self._consumer.broker.leases.release_soon(leases, finish, reason=reason, caller=caller)

    def _acknowledged(
        self, claimed: Sequence[Delivery[int]], done: Callable[[Any], None], result: Any
    ) -> None:
        if isinstance(result, Exception):
            self._keep(claimed)
        self._room_made.set()
        done(result)

    def add_to(self, transaction: Transaction, claimed: Sequence[Delivery[int]], reason: str | None) -> None:
        leases = [delivery.place for delivery in claimed]
        if reason is None:
            transaction.settle(leases)
        else:
            transaction.release(leases, reason)

    def committed(self, claimed: Sequence[Delivery[int]]) -> None:
        self._unacknowledged.claimed -= len(claimed)
        self._room_made.set()

    def restore(self, claimed: Sequence[Delivery[int]]) -> None:
        """Restore deliveries whose transaction was aborted."""
        self._unacknowledged.claimed -= len(claimed)
        self._keep(claimed)

    def _keep(self, claimed: Sequence[Delivery[int]]) -> None:
        if self._is_over:
            self._give_up([delivery.place for delivery in claimed], None)
        else:
            self._unacknowledged.restore(claimed)

    # The end

    async def catch_up(self) -> None:
        """Send the messages that are in the queue now, up to CATCH_UP_MESSAGES."""
        left = CATCH_UP_MESSAGES
        while left > 0:
            leased, done = future.new()
            limit = min(self._limit(), left)
            self._consumer.broker.queues.lease_soon(
                self._queue.queue_id, 0, done, limit=limit, caller=self._consumer.carrier.caller
            )
            found = await leased
            self._deliver(found)
            left = left - limit if len(found) == limit else 0

    async def close(self, reason: str | None) -> None:
        """Return unacknowledged messages to the queue: as a failed attempt if there is a reason."""
        self.stop(reason)

    def stop(self, reason: str | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._consumed.end()
        self._room_made.set()
        if self._waiter is not None:
            self._consumer.broker.queues.leave(self._waiter)
            self._waiter.done([])
        self._give_up(self._unacknowledged.clear(), reason)

    def _give_up(self, leases: Sequence[int], reason: str | None) -> None:
        if leases:
            self._consumer.broker.leases.give_up(leases, reason=reason, caller=self._consumer.carrier.caller)
