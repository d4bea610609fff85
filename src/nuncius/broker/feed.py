"""A feed: a subscription's entries handed over as they come, with acknowledgement, attempts and retries.

What a subscriber cannot take does not hold up what comes after: its place moves on, and the failed entry
comes again by itself, a while later, until it is taken or is a dead letter. A feed is one small task; a
subscriber that does not read stops its own feed and nobody else's.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Any

from nuncius.broker import future
from nuncius.broker.errors import TakenOver
from nuncius.broker.leases import clean
from nuncius.broker.outstanding import Given, Outstanding, Place
from nuncius.broker.signals import Signals
from nuncius.broker.subscriptions import Reader, Subscription
from nuncius.broker.tails import Chunk, Tails
from nuncius.store.acknowledging import AcknowledgeCall, Acknowledgement, DeliverCall, Spot
from nuncius.store.combiner import Combiner
from nuncius.store.errors import StoreError
from nuncius.store.store import Store

log = logging.getLogger(__name__)

BATCH = 500  # entries at a time
CONFIRM_SECONDS = 1.0  # how often the place of a subscriber who does not acknowledge is noted
LEFT = "the subscriber left before it was acknowledged"

KNOWN = (
    "select p.partition, coalesce(d.delivered_to, 0) from nuncius.subscriptions s"
    " join nuncius.partitions p using (topic_id)"
    " left join lateral (select max(d.delivered_to) as delivered_to from nuncius.deliveries d"
    "  where d.subscription_id = s.subscription_id and d.partition_id = p.partition_id) d on true"
    " where s.subscription_id = $1"
)
FAILED = (
    "select p.partition, f.entry_offset, f.attempts,"
    " greatest(0, date_part('epoch', f.due_at - clock_timestamp()))::float8"
    " from nuncius.failures f join nuncius.partitions p using (partition_id) where f.subscription_id = $1"
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries [start:end] of a chunk. `attempts`: how often this (single) entry failed before. Offsets below
    `redelivered_to` may have been delivered before."""

    partition: int
    chunk: Chunk
    start: int
    end: int
    attempts: int
    redelivered_to: int


@dataclass(frozen=True, slots=True)
class Settings:
    durable: bool
    acknowledged: bool
    prefetch: int
    gate: AbstractAsyncContextManager[None] | None
    caller: Hashable


@dataclass(frozen=True, slots=True)
class Means:
    """What all feeds of a node share."""

    store: Store
    tails: Tails
    signals: Signals
    deliveries: Combiner[DeliverCall]
    acknowledgements: Combiner[AcknowledgeCall]
    retry_delay: float


class Feed:
    def __init__(
        self,
        means: Means,
        subscription: Subscription,
        reader: Reader,
        push: Callable[[Batch], None],
        settings: Settings,
        ended: Callable[[Exception], None] | None,
        closed: Callable[["Feed"], Awaitable[None]],
    ) -> None:
        self._means = means
        self.subscription = subscription
        self._reader = reader
        self._push = push
        self._settings = settings
        self._ended = ended
        self._closed = closed
        self._leaving: asyncio.Task[None] | None = None
        self._outstanding = Outstanding()
        self._retries: list[tuple[float, int, int, int]] = []  # when, partition, offset, attempts: a heap
        self._failed_before: set[Place] = set()  # and the place has not passed them yet
        self._redelivered: dict[int, int] = {}  # partition: offsets below may have been delivered before
        self._wake = asyncio.Event()  # something to do besides new entries
        self._unconfirmed = False  # something was pushed to a subscriber who does not acknowledge
        self._confirmed_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        store, me = self._means.store, self.subscription.subscription_id
        if not self.subscription.created:
            self._redelivered = {row[0]: row[1] for row in await store.query(KNOWN, me)}
            self._remember_failures(await store.query(FAILED, me))
        self._means.signals.watch(self.subscription.topic.topic_id, self._wake.set)
        self._task = self._loop.create_task(self._run())

    def _remember_failures(self, rows: Sequence[Any]) -> None:
        """Entries that failed come again when they are due. Those that the place has not passed are read
        again anyway, and come with that."""
        now = self._loop.time()
        for partition, offset, attempts, wait in rows:
            if offset >= self._reader.places[partition][1]:
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
        self._means.signals.unwatch(self.subscription.topic.topic_id, self._wake.set)
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

    # What the subscriber says

    def ack_soon(self, partition: int, offset: int, done: Callable[[Any], None], *, cumulative: bool) -> None:
        """This entry (if cumulative: and all that were pushed before it) was taken."""
        taken, said = self.acknowledge(partition, offset, cumulative=cumulative)
        self._say(taken, said, done)

    def nack_soon(
        self,
        partition: int,
        offset: int,
        done: Callable[[Any], None],
        *,
        cumulative: bool,
        reason: str,
    ) -> None:
        """The same entries could not be taken: each comes again, or becomes a dead letter."""
        taken, said = self.acknowledge(partition, offset, cumulative=cumulative, reason=reason)
        self._say(taken, said, done)

    def acknowledge(
        self, partition: int, offset: int, *, cumulative: bool, reason: str | None = None
    ) -> tuple[Mapping[Place, Given], Acknowledgement]:
        """Takes entries off the list, and says what the store has to be told."""
        taken = self._outstanding.take(partition, offset, cumulative=cumulative)
        self._wake.set()
        return taken, self._words(taken, reason)

    def restore(self, taken: Mapping[Place, Given]) -> None:
        """The store was not told after all."""
        self._outstanding.restore(taken)

    def failed(self, taken: Mapping[Place, Given], attempts: Sequence[int]) -> None:
        """The store has noted these failures; the entries come again when their time has come."""
        due = self._loop.time() + self._means.retry_delay
        for (partition, offset), count in zip(taken, attempts, strict=True):
            if count > 0:
                heappush(self._retries, (due, partition, offset, count))
        self._wake.set()

    def _words(self, taken: Mapping[Place, Given], reason: str | None) -> Acknowledgement:
        if reason is not None:
            failed = [self._spot(*place) for place in taken]
            return Acknowledgement(self, taken, failed, (), clean(reason) or "")
        again = [
            self._spot(*place)
            for place, given in taken.items()
            if given.attempts or (self._failed_before and place in self._failed_before)
        ]
        return Acknowledgement(self, taken, (), again)

    def _say(self, taken: Mapping[Place, Given], said: Acknowledgement, done: Callable[[Any], None]) -> None:
        self._tell(said, partial(self._said, taken, said, done))

    def _said(
        self, taken: Mapping[Place, Given], said: Acknowledgement, done: Callable[[Any], None], result: Any
    ) -> None:
        if isinstance(result, Exception):
            self.restore(taken)
            done(result)
            return
        if said.failed:
            self.failed(taken, result)
        done(None)

    def _tell(self, said: Acknowledgement, done: Callable[[Any], None] | None = None) -> None:
        me = self.subscription.subscription_id
        self._means.acknowledgements.submit(AcknowledgeCall(done or _ignore, self._settings.caller, me, said))

    def _spot(self, partition: int, offset: int) -> Spot:
        return Spot(self.subscription.subscription_id, self._reader.places[partition][0], offset)

    # What the store is told of the subscriber's place (see `Ledger`)

    def reached(self, entries: Sequence[Mapping[Place, Given]]) -> Sequence[Spot]:
        return [self._spot(*each) for each in self._outstanding.reached(entries).items()]

    def stored(self, entries: Sequence[Mapping[Place, Given]], positions: Sequence[Spot]) -> None:
        now = [self._spot(*each) for each in self._outstanding.settle(entries).items()]
        if self._failed_before:
            self._failed_before.difference_update(*entries)
        told = {spot.partition_id: spot.offset for spot in positions}
        # Something else was stored at the same time, and together they reach farther than either knew.
        ahead = [spot for spot in now if spot.offset > told[spot.partition_id]]
        if ahead:
            self._tell(Acknowledgement(confirmed=ahead))

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
                if self._room() <= 0 or not await self._step():
                    await self._something()
        except Exception as error:
            log.info(
                "a feed broke off", extra={"subscriber": self.subscription.subscriber, "error": str(error)}
            )
            if self._ended is not None:
                self._ended(error)

    def _room(self) -> int:
        if not self._settings.acknowledged:
            return BATCH
        return min(BATCH, self._settings.prefetch - len(self._outstanding))

    async def _step(self) -> bool:
        """Hands over what comes next: an entry that is due again, and new ones. False: there is nothing."""
        async with self._settings.gate or nullcontext():
            return await self._hand_over()

    async def _hand_over(self) -> bool:
        again = bool(self._retries) and self._retries[0][0] <= self._loop.time()
        if again:
            await self._again(*heappop(self._retries)[1:])
            if self._room() <= 0:
                return True
        found = await self._reader.look(self._room(), self._settings.caller)
        if found is not None:
            redelivered = self._redelivered.get(found.partition, 0)
            if self._settings.acknowledged:
                if self._settings.durable and found.next_offset > redelivered:
                    await self._note(found.partition, found.next_offset)
                self._outstanding.give(found.partition, found.first_offset, found.end - found.start)
            self._unconfirmed = True
            self._push(Batch(found.partition, found.chunk, found.start, found.end, 0, redelivered))
        if not self._settings.acknowledged:
            await self._confirm_now_and_then()
        return again or found is not None

    async def _again(self, partition: int, offset: int, attempts: int) -> None:
        """An entry that failed is due. If retention has passed it, nobody misses it."""
        partition_id = self._reader.places[partition][0]
        found = await self._means.tails.fetch_one(partition_id, offset, self._settings.caller)
        if found is None or not self._settings.acknowledged:
            self._tell(Acknowledgement(taken=[self._spot(partition, offset)]))
        if found is None:
            return
        if self._settings.acknowledged:
            self._outstanding.give(partition, offset, 1, attempts)
        chunk, start = found
        self._push(Batch(partition, chunk, start, start + 1, attempts, offset + 1))

    async def _note(self, partition: int, delivered_to: int) -> None:
        noted, done = future.new()
        call = DeliverCall(done, self._settings.caller, self._spot(partition, delivered_to))
        self._means.deliveries.submit(call)
        await noted

    async def _confirm_now_and_then(self) -> None:
        """For a durable subscriber at once, for others every now and then: it matters to retention only."""
        now = self._loop.time()
        if self._unconfirmed and (self._settings.durable or now - self._confirmed_at >= CONFIRM_SECONDS):
            self._confirmed_at = now
            await self._confirm_pushed()

    async def _confirm_pushed(self) -> None:
        if self._unconfirmed:
            places = self._reader.places.items()
            spots = [self._spot(each, position) for each, (_, position) in places if position]
            said, done = future.new()
            self._tell(Acknowledgement(confirmed=spots), done)
            await said
            self._unconfirmed = False

    async def _something(self) -> None:
        """Waits for new entries, for an acknowledgement, or for the time of the next retry."""
        if not self._retries or self._room() <= 0:
            await self._wake.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._retries[0][0]):
                await self._wake.wait()


def _ignore(result: Any) -> None:
    """What could not be stored will be said again, or is true again when it is looked up."""
