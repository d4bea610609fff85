"""Feeds: a subscription's entries handed over as they come, with acknowledgement, attempts and retries.

This is the report's distributor. What a subscriber cannot take does not hold up what comes after: its place
moves on, and the failed entry comes again by itself, a while later, until it is taken or is a dead letter.
A feed is one small task; a subscriber that does not read stops its own feed and nobody else's.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Any

from nuncius.broker import future
from nuncius.broker.limits import Limits
from nuncius.broker.listener import Listener
from nuncius.broker.outstanding import Given, Outstanding, Place
from nuncius.broker.signals import Signals
from nuncius.broker.subscriptions import Reader, Subscription, Subscriptions
from nuncius.broker.tails import Chunk, Tails
from nuncius.store.acknowledging import (
    AcknowledgeCall,
    Acknowledgement,
    Acknowledging,
    DeliverCall,
    Spot,
    deliver,
)
from nuncius.store.errors import StoreError
from nuncius.store.store import Store

log = logging.getLogger(__name__)

BATCH = 500  # entries at a time
CONFIRM_SECONDS = 1.0  # how often the place of a subscriber who does not acknowledge is noted

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
    writable: Callable[[], Awaitable[None]] | None
    caller: Hashable


class Feeds:
    def __init__(
        self,
        store: Store,
        subscriptions: Subscriptions,
        tails: Tails,
        signals: Signals,
        listener: Listener,
        limits: Limits,
    ) -> None:
        self.store = store
        self.subscriptions = subscriptions
        self.tails = tails
        self.signals = signals
        self.retry_delay = limits.retry_delay
        self._listener = listener
        self._acknowledging = Acknowledging(limits.retry_delay, limits.max_attempts)
        self.deliveries = store.combiner("deliver", deliver)
        self.acknowledgements = store.combiner("acknowledge", self._acknowledging.acknowledge)

    async def open(
        self,
        topic: str,
        subscriber: str,
        push: Callable[[Batch], None],
        *,
        start: str = "latest",
        durable: bool = False,
        acknowledged: bool = False,
        prefetch: int = 1000,
        writable: Callable[[], Awaitable[None]] | None = None,
        caller: Hashable = None,
        ended: Callable[[Exception], None] | None = None,
    ) -> "Feed":
        """Begins to push what comes for this subscriber. One that is not durable lives as long as the feed.
        Without acknowledgement what was pushed counts as received; with it, at most `prefetch` entries are
        outstanding. `writable` is awaited before each push. `ended` learns why a feed broke off."""
        holder = None if durable else self._listener.holder
        subscription = await self.subscriptions.subscribe(topic, subscriber, start=start, holder=holder)
        reader = await self.subscriptions.reader(subscription)
        settings = Settings(durable, acknowledged, max(1, prefetch), writable, caller)
        feed = Feed(self, subscription, reader, push, settings, ended)
        await feed.start()
        return feed

    async def acknowledge_in(
        self, connection: Any, said: list[tuple["Feed", Acknowledgement]]
    ) -> list[list[int]]:
        """Says these things as part of somebody's transaction."""
        calls = [AcknowledgeCall(lambda _: None, None, each) for _, each in said]
        return await self._acknowledging.acknowledge(connection, calls, True)


class Feed:
    def __init__(
        self,
        feeds: Feeds,
        subscription: Subscription,
        reader: Reader,
        push: Callable[[Batch], None],
        settings: Settings,
        ended: Callable[[Exception], None] | None,
    ) -> None:
        self._feeds = feeds
        self.subscription = subscription
        self._reader = reader
        self._push = push
        self._settings = settings
        self._ended = ended
        self._outstanding = Outstanding()
        self._retries: list[tuple[float, int, int, int]] = []  # when, partition, offset, attempts: a heap
        self._redelivered: dict[int, int] = {}  # partition: offsets below may have been delivered before
        self._wake = asyncio.Event()  # something to do besides new entries
        self._confirmed_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        store, me = self._feeds.store, self.subscription.subscription_id
        if not self.subscription.created:
            self._redelivered = {row[0]: row[1] for row in await store.query(KNOWN, me)}
            now = self._loop.time()
            for partition, offset, attempts, wait in await store.query(FAILED, me):
                heappush(self._retries, (now + wait, partition, offset, attempts))
        self._feeds.signals.watch(self.subscription.topic.topic_id, self._wake.set)
        self._task = self._loop.create_task(self._run())

    async def close(self) -> None:
        """No more entries. A subscription that is not durable ends."""
        self._feeds.signals.unwatch(self.subscription.topic.topic_id, self._wake.set)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if not self._settings.durable:
            with contextlib.suppress(StoreError):  # else the collector finds it
                await self._feeds.store.query(
                    "select nuncius.end_subscriptions($1)", [self.subscription.subscription_id]
                )
        elif not self._settings.acknowledged:
            await self._confirm_pushed()

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
    ) -> tuple[dict[Place, Given], Acknowledgement]:
        """Takes entries off the list, and says what the store has to be told."""
        taken = self._outstanding.take(partition, offset, cumulative=cumulative)
        positions = self._outstanding.positions({each for each, _ in taken})
        confirmed = [self._spot(each, position) for each, position in positions.items()]
        self._wake.set()
        if reason is not None:
            failed = [self._spot(*place) for place in taken]
            return taken, Acknowledgement(confirmed, failed, (), reason)
        again = [self._spot(*place) for place, given in taken.items() if given.attempts]
        return taken, Acknowledgement(confirmed, (), again)

    def restore(self, taken: dict[Place, Given]) -> None:
        """The store was not told after all."""
        self._outstanding.restore(taken)

    def failed(self, taken: dict[Place, Given], attempts: list[int]) -> None:
        """The store has noted these failures; the entries come again when their time has come."""
        due = self._loop.time() + self._feeds.retry_delay
        for (partition, offset), count in zip(taken, attempts, strict=True):
            if count > 0:
                heappush(self._retries, (due, partition, offset, count))
        self._wake.set()

    def _say(self, taken: dict[Place, Given], said: Acknowledgement, done: Callable[[Any], None]) -> None:
        call = AcknowledgeCall(partial(self._said, taken, said, done), self._settings.caller, said)
        self._feeds.acknowledgements.submit(call)

    def _said(
        self, taken: dict[Place, Given], said: Acknowledgement, done: Callable[[Any], None], result: Any
    ) -> None:
        if isinstance(result, Exception):
            self.restore(taken)
            done(result)
            return
        if said.failed:
            self.failed(taken, result)
        done(None)

    def _spot(self, partition: int, offset: int) -> Spot:
        return Spot(self.subscription.subscription_id, self._reader.places[partition][0], offset)

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
        """Hands over what comes next; False when there is nothing."""
        if self._settings.writable is not None:
            await self._settings.writable()
        if self._retries and self._retries[0][0] <= self._loop.time():
            await self._again(*heappop(self._retries)[1:])
            return True
        found = await self._reader.look(self._room(), self._settings.caller)
        if found is None:
            if not self._settings.acknowledged:
                await self._confirm_now_and_then()
            return False
        redelivered = self._redelivered.get(found.partition, 0)
        if self._settings.acknowledged:
            if self._settings.durable and found.next_offset > redelivered:
                await self._note(found.partition, found.next_offset)
            self._outstanding.give(found.partition, found.first_offset, found.end - found.start)
        self._push(Batch(found.partition, found.chunk, found.start, found.end, 0, redelivered))
        if not self._settings.acknowledged:
            await self._confirm_now_and_then()
        return True

    async def _again(self, partition: int, offset: int, attempts: int) -> None:
        """An entry that failed is due. If retention has passed it, nobody misses it."""
        partition_id = self._reader.places[partition][0]
        found = await self._feeds.tails.fetch(partition_id, offset, self._settings.caller)
        if not isinstance(found, tuple) or found[0].entries.first_offset + found[1] != offset:
            said = Acknowledgement(taken=[self._spot(partition, offset)])
            self._feeds.acknowledgements.submit(AcknowledgeCall(lambda _: None, None, said))
            return
        if self._settings.acknowledged:
            self._outstanding.give(partition, offset, 1, attempts)
        chunk, start = found
        self._push(Batch(partition, chunk, start, start + 1, attempts, offset + 1))

    async def _note(self, partition: int, delivered_to: int) -> None:
        noted, done = future.new()
        call = DeliverCall(done, self._settings.caller, self._spot(partition, delivered_to))
        self._feeds.deliveries.submit(call)
        await noted

    async def _confirm_now_and_then(self) -> None:
        """For a durable subscriber at once, for others every now and then: it matters to retention only."""
        now = self._loop.time()
        if self._settings.durable or now - self._confirmed_at >= CONFIRM_SECONDS:
            self._confirmed_at = now
            await self._confirm_pushed()

    async def _confirm_pushed(self) -> None:
        spots = [
            self._spot(each, position) for each, (_, position) in self._reader.places.items() if position
        ]
        if spots:
            said, done = future.new()
            self._feeds.acknowledgements.submit(
                AcknowledgeCall(done, self._settings.caller, Acknowledgement(confirmed=spots))
            )
            await said

    async def _something(self) -> None:
        """Waits for new entries, for an acknowledgement, or for the time of the next retry."""
        if not self._retries or self._room() <= 0:
            await self._wake.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._retries[0][0]):
                await self._wake.wait()
