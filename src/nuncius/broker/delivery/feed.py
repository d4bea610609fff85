"""A feed: pushes a subscription's entries to its subscriber, with acknowledgement, attempts and retries.

A failed entry does not hold up later ones: the subscription's position moves on, and the entry is redelivered
after a delay until it is acknowledged or becomes a dead letter. A feed is one small task; a subscriber that
does not read stops its own feed only.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from functools import partial
from heapq import heappop, heappush
from typing import Any

from nuncius.broker import future
from nuncius.broker.delivery.cursor import Cursor
from nuncius.broker.delivery.feed_ledger import FeedLedger
from nuncius.broker.delivery.feed_parts import ENDS, FAILED, KNOWN, Batch, FeedServices, Settings
from nuncius.broker.delivery.subscriptions import Subscription
from nuncius.broker.delivery.tails import Slice
from nuncius.broker.errors import TakenOver
from nuncius.store.calls.acknowledging import Acknowledgement, DeliverCall
from nuncius.store.errors import StoreError

log = logging.getLogger(__name__)

BATCH = 500  # entries at a time
CONFIRM_SECONDS = 1.0  # how often the position of a subscriber that does not acknowledge is stored
LEFT = "the subscriber left before it was acknowledged"


class Feed(FeedLedger):
    def __init__(
        self,
        services: FeedServices,
        subscription: Subscription,
        cursor: Cursor,
        push: Callable[[Batch], None],
        settings: Settings,
        ended: Callable[[Exception], None] | None,
        closed: Callable[["Feed"], Awaitable[None]],
    ) -> None:
        super().__init__(services, subscription, cursor, settings)
        self._push = push
        self._ended = ended
        self._closed = closed
        self._leaving: asyncio.Task[None] | None = None
        self._redelivered: dict[int, int] = {}  # partition: offsets below may have been delivered before
        self._noted: dict[int, int] = {}  # partition: offsets below are noted as delivered, or about to be
        self._ordered_from = partial(settings.together.ordered_from, self)
        self.is_looking = False
        self._given = asyncio.Event()  # entries were pushed
        self._pushes = self._confirmed_pushes = 0  # to a subscriber that does not acknowledge
        self._confirmed_at = 0.0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        store, me = self._services.store, self.subscription.subscription_id
        if not self.subscription.created:
            self._redelivered = {row[0]: row[1] for row in await store.query(KNOWN, me)}
            self._remember_failures(await store.query(FAILED, me))
        self._services.signals.watch(self.subscription.topic.topic_id, self._wake.set)
        self._settings.together.add(self)
        self._task = self._loop.create_task(self._run())

    def _remember_failures(self, rows: Sequence[Any]) -> None:
        """Schedule the retries of entries that failed before. Those at or after the subscription's position
        need none: they are read again anyway."""
        now = self._loop.time()
        for partition, offset, attempts, wait in rows:
            if offset >= self.cursor.places[partition][1]:
                self._failed_before.add((partition, offset))
            else:
                heappush(self._retries, (now + wait, partition, offset, attempts))
        if self._failed_before and not self._settings.acknowledged:
            self._tell(Acknowledgement(taken=[self._spot(*place) for place in self._failed_before]))

    async def close(self, lost: str | None = None) -> None:
        """Push no more entries. A subscription that is not durable ends; to a durable one, unacknowledged
        entries are redelivered. `lost` is why the connection was lost, if the subscriber did not end it."""
        if self._leaving is not None:
            await asyncio.shield(self._leaving)
            return
        self._leaving = self._loop.create_task(self._leave(lost))
        await asyncio.shield(self._leaving)
        await self._closed(self)

    async def make_way(self) -> None:
        """Close for another feed of the same subscriber. It gets the entries not acknowledged here; that does
        not count as a failed attempt."""
        await self.close()
        if self._ended is not None:
            name, topic = self.subscription.subscriber, self.subscription.topic.name
            self._ended(TakenOver(f"the subscription {name!r} of the topic {topic!r} goes on elsewhere"))

    async def _leave(self, lost: str | None) -> None:
        self._services.signals.unwatch(self.subscription.topic.topic_id, self._wake.set)
        self._settings.together.remove(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        with contextlib.suppress(StoreError):  # entries whose acknowledgement is not stored are redelivered
            if self._settings.durable and self._settings.acknowledged:
                await self._leave_behind(lost)
            elif self._settings.durable:
                await self._confirm_pushed()

    @property
    def is_durable(self) -> bool:
        return self._settings.durable

    async def catch_up(self, most: int) -> None:
        """Return when all entries stored now are pushed, or at once if they are more than `most`. This may
        take for ever, if the subscriber does not read or retention removes some."""
        rows = await self._services.store.query(ENDS, self.subscription.topic.topic_id)
        ends = {row[0]: row[1] for row in rows}
        if sum(ends.values()) - sum(self._place(partition) for partition in ends) > most:
            return
        while any(self._place(partition) < end for partition, end in ends.items()):
            self._given.clear()
            await self._given.wait()

    def _place(self, partition: int) -> int:
        return self.cursor.places.get(partition, (0, 0))[1]

    async def _leave_behind(self, lost: str | None) -> None:
        """Store the state of a subscriber that leaves. Acknowledged entries must not be redelivered because
        of an unacknowledged one before them: that one counts as failed, and the position moves on. This is
        the feed's last word to the store, so everything before it is stored.

        An entry at which the connection is lost for the second time may be the reason. It counts as failed,
        too, so that it is not redelivered first for ever."""
        left = self._outstanding.left_behind()
        if lost is not None:
            left |= self._outstanding.first_below(self._redelivered)
        noted, done = future.new()
        self._say(left, self._words(left, lost or LEFT), done)
        await noted

    # Handing over

    async def _run(self) -> None:
        try:
            while True:
                self._wake.clear()
                if self.room() <= 0 or not await self._step():
                    await self._something()
        except Exception as error:
            log.info(
                "a feed broke off", extra={"subscriber": self.subscription.subscriber, "error": str(error)}
            )
            self._settings.together.remove(self)
            if self._ended is not None:
                self._ended(error)

    def room(self) -> int:
        """Return how many entries the subscriber may get."""
        if not self._settings.acknowledged:
            return BATCH
        return min(BATCH, self._settings.prefetch - len(self._outstanding))

    def wake(self) -> None:
        """Have the feed look for entries."""
        self._wake.set()

    async def _step(self) -> bool:
        """Push the next entries: a due retry, and new ones. Return False if there is nothing."""
        async with self._settings.gate or nullcontext():
            return await self._hand_over()

    async def _hand_over(self) -> bool:
        again = bool(self._retries) and self._retries[0][0] <= self._loop.time()
        if again:
            await self._again(*heappop(self._retries)[1:])
            if self.room() <= 0:
                return True
        found = await self._look()
        together = self._settings.together
        if together.are_several and together.hand_over():
            found = True
        if not self._settings.acknowledged:
            await self._confirm_now_and_then()
        return again or found

    async def _look(self) -> bool:
        """Push the next entries that need no order with other feeds, if there are any."""
        self.is_looking = True
        try:
            found = await self.cursor.look(self.room(), self._settings.caller, self._ordered_from)
            if self._is_noted_before:
                await self._note(found)
            if found is not None:
                self._give(found)
        finally:
            self.is_looking = False
        return found is not None

    def give_fetched(self, partition: int, end: int, limit: int) -> Slice | None:
        """Push the next entries of this partition below the offset `end`, as far as they are fetched (and
        noted in the store, if that is needed). They are next in the order of all feeds of the caller."""
        if self._is_noted_before:
            end = min(end, self._noted.get(partition, 0))
        if end <= self.cursor.places[partition][1]:
            return None
        found = self.cursor.take_fetched(partition, end, limit)
        if found is not None:
            self._give(found)
            if self._settings.durable:
                self._wake.set()  # to confirm it
        return found

    def _give(self, found: Slice) -> None:
        redelivered = self._redelivered.get(found.partition, 0)
        if self._settings.acknowledged:
            self._outstanding.give(found.partition, found.first_offset, found.end - found.start)
        self._services.tails.on_delivery(self._settings.caller, found.end - found.start)
        self._pushes += 1
        self._push(Batch(found.partition, found.chunk, found.start, found.end, 0, redelivered))
        self._given.set()

    @property
    def _is_noted_before(self) -> bool:
        """Return True if the store has to note entries before the subscriber gets them."""
        return self._settings.durable and self._settings.acknowledged

    async def _again(self, partition: int, offset: int, attempts: int) -> None:
        """Redeliver an entry whose retry is due. If retention has passed it, drop the retry."""
        partition_id = self.cursor.places[partition][0]
        found = await self._services.tails.fetch_one(partition_id, offset, self._settings.caller)
        if found is None or not self._settings.acknowledged:
            self._tell(Acknowledgement(taken=[self._spot(partition, offset)]))
        if found is None:
            return
        if self._settings.acknowledged:
            self._outstanding.give(partition, offset, 1, attempts)
        chunk, start = found
        self._push(Batch(partition, chunk, start, start + 1, attempts, offset + 1))

    async def _note(self, found: Slice | None) -> None:
        """Note in the store which entries will be delivered: those found and, with several feeds, those
        fetched."""
        ends = {}
        if found is not None:
            ends[found.partition] = found.next_offset
        if self._settings.together.are_several:
            for partition, (_, position) in self.cursor.places.items():
                ends[partition] = min(self.cursor.fetched_to(partition), position + self.room())
        noting = []
        for partition, end in ends.items():
            if end > max(self._noted.get(partition, 0), self._redelivered.get(partition, 0)):
                noted, done = future.new()
                call = DeliverCall(done, self._settings.caller, self._spot(partition, end))
                self._services.deliveries.submit(call)
                noting.append(noted)
        for noted in noting:
            await noted
        for partition, end in ends.items():
            self._noted[partition] = max(end, self._noted.get(partition, 0))

    async def _confirm_now_and_then(self) -> None:
        """Confirm pushed entries: for a durable subscription at once, for others every second, because there
        only retention needs it."""
        now = self._loop.time()
        if self._pushes != self._confirmed_pushes and (
            self._settings.durable or now - self._confirmed_at >= CONFIRM_SECONDS
        ):
            self._confirmed_at = now
            await self._confirm_pushed()

    async def _confirm_pushed(self) -> None:
        if self._pushes != self._confirmed_pushes:
            places = self.cursor.places.items()
            spots = [self._spot(each, position) for each, (_, position) in places if position]
            said, done = future.new()
            pushes = self._pushes
            self._tell(Acknowledgement(confirmed=spots), done)
            await said
            self._confirmed_pushes = pushes

    async def _something(self) -> None:
        """Wait for new entries, for an acknowledgement, or for the next retry."""
        if not self._retries or self.room() <= 0:
            await self._wake.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._retries[0][0]):
                await self._wake.wait()
