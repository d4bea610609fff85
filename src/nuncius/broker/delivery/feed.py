"""A feed: a subscription's entries handed over as they come, with acknowledgement, attempts and retries.

What a subscriber cannot take does not hold up what comes after: its place moves on, and the failed entry
comes again by itself, a while later, until it is taken or is a dead letter. A feed is one small task; a
subscriber that does not read stops its own feed and nobody else's.
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
from nuncius.broker.delivery.feed_ledger import FeedLedger
from nuncius.broker.delivery.feed_parts import ENDS, FAILED, KNOWN, Batch, FeedServices, Settings
from nuncius.broker.delivery.subscriptions import Reader, Subscription
from nuncius.broker.delivery.tails import Slice
from nuncius.broker.errors import TakenOver
from nuncius.store.calls.acknowledging import Acknowledgement, DeliverCall
from nuncius.store.errors import StoreError

log = logging.getLogger(__name__)

BATCH = 500  # entries at a time
CONFIRM_SECONDS = 1.0  # how often the place of a subscriber who does not acknowledge is noted
LEFT = "the subscriber left before it was acknowledged"


class Feed(FeedLedger):
    def __init__(
        self,
        services: FeedServices,
        subscription: Subscription,
        reader: Reader,
        push: Callable[[Batch], None],
        settings: Settings,
        ended: Callable[[Exception], None] | None,
        closed: Callable[["Feed"], Awaitable[None]],
    ) -> None:
        super().__init__(services, subscription, reader, settings)
        self._push = push
        self._ended = ended
        self._closed = closed
        self._leaving: asyncio.Task[None] | None = None
        self._redelivered: dict[int, int] = {}  # partition: offsets below may have been delivered before
        self._noted: dict[int, int] = {}  # partition: offsets below are noted as delivered, or about to be
        self._ordered_from = partial(settings.together.ordered_from, self)
        self.is_looking = False
        self._given = asyncio.Event()  # something was handed over
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
        """Entries that failed come again when they are due. Those that the place has not passed are read
        again anyway, and come with that."""
        now = self._loop.time()
        for partition, offset, attempts, wait in rows:
            if offset >= self.reader.places[partition][1]:
                self._failed_before.add((partition, offset))
            else:
                heappush(self._retries, (now + wait, partition, offset, attempts))
        if self._failed_before and not self._settings.acknowledged:
            self._tell(Acknowledgement(taken=[self._spot(*place) for place in self._failed_before]))

    async def close(self, lost: str | None = None) -> None:
        """No more entries. A subscription that is not durable ends; to one that is, what was not acknowledged
        comes again. `lost` is why the subscriber went, if it did not say goodbye."""
        if self._leaving is not None:
            await asyncio.shield(self._leaving)
            return
        self._leaving = self._loop.create_task(self._leave(lost))
        await asyncio.shield(self._leaving)
        await self._closed(self)

    async def make_way(self) -> None:
        """The subscriber has come elsewhere. What it was given here and has not acknowledged comes again
        there; that is not an attempt that failed."""
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
        with contextlib.suppress(StoreError):  # what was not stored comes again
            if self._settings.durable and self._settings.acknowledged:
                await self._leave_behind(lost)
            elif self._settings.durable:
                await self._confirm_pushed()

    @property
    def is_durable(self) -> bool:
        return self._settings.durable

    async def catch_up(self, most: int) -> None:
        """Return when everything is handed over that is stored now, unless that is more than so many entries.
        May take for ever, if the subscriber does not read or retention removes some."""
        rows = await self._services.store.query(ENDS, self.subscription.topic.topic_id)
        ends = {row[0]: row[1] for row in rows}
        if sum(ends.values()) - sum(self._place(partition) for partition in ends) > most:
            return
        while any(self._place(partition) < end for partition, end in ends.items()):
            self._given.clear()
            await self._given.wait()

    def _place(self, partition: int) -> int:
        return self.reader.places.get(partition, (0, 0))[1]

    async def _leave_behind(self, lost: str | None) -> None:
        """The subscriber leaves. What it has acknowledged must not come again because of something before
        that it has not: that is noted as a failure, and the place moves on. Said last, so all is stored.

        An entry at which the subscriber is lost for the second time may be the reason. It counts as failed,
        too, so that it does not come first for ever."""
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
        """How many entries the subscriber may be given."""
        if not self._settings.acknowledged:
            return BATCH
        return min(BATCH, self._settings.prefetch - len(self._outstanding))

    def wake(self) -> None:
        """Looks for entries."""
        self._wake.set()

    async def _step(self) -> bool:
        """Hands over what comes next: an entry that is due again, and new ones. False: there is nothing."""
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
        """Hands over what comes next without regard to other feeds, if there is something."""
        self.is_looking = True
        try:
            found = await self.reader.look(self.room(), self._settings.caller, self._ordered_from)
            if self._is_noted_before:
                await self._note(found)
            if found is not None:
                self._give(found)
        finally:
            self.is_looking = False
        return found is not None

    def give_fetched(self, partition: int, end: int, limit: int) -> Slice | None:
        """Hand over what comes next in this partition, to before the offset `end`, as far as it is fetched
        (and noted, where that comes first). It is the turn of these entries among those of other feeds."""
        if self._is_noted_before:
            end = min(end, self._noted.get(partition, 0))
        if end <= self.reader.places[partition][1]:
            return None
        found = self.reader.take_fetched(partition, end, limit, self._settings.caller)
        if found is not None:
            self._give(found)
            if self._settings.durable:
                self._wake.set()  # to confirm it
        return found

    def _give(self, found: Slice) -> None:
        redelivered = self._redelivered.get(found.partition, 0)
        if self._settings.acknowledged:
            self._outstanding.give(found.partition, found.first_offset, found.end - found.start)
        self._pushes += 1
        self._push(Batch(found.partition, found.chunk, found.start, found.end, 0, redelivered))
        self._given.set()

    @property
    def _is_noted_before(self) -> bool:
        """Whether the store has to know of entries before the subscriber gets them."""
        return self._settings.durable and self._settings.acknowledged

    async def _again(self, partition: int, offset: int, attempts: int) -> None:
        """An entry that failed is due. If retention has passed it, nobody misses it."""
        partition_id = self.reader.places[partition][0]
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
        """Note as delivered what was found and, where other feeds come first, what is fetched already."""
        ends = {}
        if found is not None:
            ends[found.partition] = found.next_offset
        if self._settings.together.are_several:
            for partition, (_, position) in self.reader.places.items():
                ends[partition] = min(self.reader.fetched_to(partition), position + self.room())
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
        """For a durable subscriber at once, for others every now and then: it matters to retention only."""
        now = self._loop.time()
        if self._pushes != self._confirmed_pushes and (
            self._settings.durable or now - self._confirmed_at >= CONFIRM_SECONDS
        ):
            self._confirmed_at = now
            await self._confirm_pushed()

    async def _confirm_pushed(self) -> None:
        if self._pushes != self._confirmed_pushes:
            places = self.reader.places.items()
            spots = [self._spot(each, position) for each, (_, position) in places if position]
            said, done = future.new()
            pushes = self._pushes
            self._tell(Acknowledgement(confirmed=spots), done)
            await said
            self._confirmed_pushes = pushes

    async def _something(self) -> None:
        """Waits for new entries, for an acknowledgement, or for the time of the next retry."""
        if not self._retries or self.room() <= 0:
            await self._wake.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._retries[0][0]):
                await self._wake.wait()
