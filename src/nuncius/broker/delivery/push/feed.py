"""A feed: pushes a subscription's entries to its subscriber, with acknowledgement, attempts and retries.

A failed entry does not hold up later ones: the subscription's position moves on, and the entry is redelivered
after a delay until it is acknowledged or becomes a dead letter. A feed is one small task; a subscriber that
does not read stops its own feed only.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial

from nuncius.broker.background.signals import news_before
from nuncius.broker.delivery.cursor import Cursor
from nuncius.broker.delivery.push.ledger import FeedLedger
from nuncius.broker.delivery.push.parts import FeedServices, FeedSettings, PushedSlice
from nuncius.broker.delivery.subscriptions import Subscription
from nuncius.broker.delivery.tails import TailSlice
from nuncius.broker.errors import TakenOver
from nuncius.store.calls.acknowledging import Acknowledgement
from nuncius.store.errors import StoreError
from nuncius.store.queries import query

DELIVERED = query("feeds", "delivered")
FAILED = query("feeds", "failures")
ENDS = query("feeds", "ends")

log = logging.getLogger(__name__)


class Feed(FeedLedger):
    def __init__(
        self,
        services: FeedServices,
        subscription: Subscription,
        cursor: Cursor,
        push: Callable[[PushedSlice], None],
        settings: FeedSettings,
        ended: Callable[[Exception], None] | None,
        closed: Callable[["Feed"], Awaitable[None]],
    ) -> None:
        super().__init__(services, subscription, cursor, settings)
        self._push = push
        self._ended = ended
        self._closed = closed
        self._leaving: asyncio.Task[None] | None = None
        self._ordered_from = partial(settings.together.ordered_from, self)
        self.is_looking = False
        self._given = asyncio.Event()  # entries were pushed
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        store, me = self._services.store, self.subscription.subscription_id
        if not self.subscription.created:
            self._redelivered = {row[0]: row[1] for row in await store.query(DELIVERED, me)}
            positions = {each: position for each, (_, position) in self.cursor.places.items()}
            ahead = self._failures.remember(await store.query(FAILED, me), positions, self._loop.time())
            if ahead and not self._settings.acknowledged:
                self._tell(Acknowledgement(taken=[self._spot(*place) for place in ahead]))
        self._services.tails.signals.watch(self.subscription.topic.topic_id, self._wake.set)
        self._settings.together.add(self)
        self._task = self._loop.create_task(self._run())

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
        self._services.tails.signals.unwatch(self.subscription.topic.topic_id, self._wake.set)
        self._settings.together.remove(self)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        with contextlib.suppress(StoreError):  # entries whose acknowledgement is not stored are redelivered
            if self._settings.durable and self._settings.acknowledged:
                await self._leave_behind(lost)
            elif self._settings.durable:
                await self._confirm_pushed()

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

    async def _step(self) -> bool:
        """Push the next entries: a due retry, and new ones. Return False if there is nothing."""
        async with self._settings.gate or nullcontext():
            due = self._failures.take_due(self._loop.time())
            if due is not None:
                await self._again(*due)
                if self.room() <= 0:
                    return True
            found = await self._look()
            together = self._settings.together
            if together.are_several and together.hand_over():
                found = True
            if not self._settings.acknowledged:
                await self._confirm_now_and_then()
            return due is not None or found

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

    def give_fetched(self, partition: int, end: int, limit: int) -> TailSlice | None:
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

    def _give(self, found: TailSlice) -> None:
        redelivered = self._redelivered.get(found.partition, 0)
        if self._settings.acknowledged:
            self._outstanding.give(found.partition, found.first_offset, found.end - found.start)
        self._services.tails.on_delivery(self._settings.caller, found.end - found.start)
        self._pushes += 1
        self._push(PushedSlice(found.partition, found.chunk, found.start, found.end, 0, redelivered))
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
        self._push(PushedSlice(partition, chunk, start, start + 1, attempts, offset + 1))

    async def _something(self) -> None:
        """Wait for new entries, for an acknowledgement, or for the next retry."""
        if self._failures.next_at is None or self.room() <= 0:
            await self._wake.wait()
        else:
            await news_before(self._failures.next_at, self._wake)
