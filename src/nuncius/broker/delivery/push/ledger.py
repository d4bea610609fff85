"""The acknowledgements of a feed's subscriber, and the subscription's position that results from them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from nuncius.broker import future
from nuncius.broker.delivery.cursor import Cursor
from nuncius.broker.delivery.push.failures import Failures
from nuncius.broker.delivery.push.outstanding import Given, Outstanding, Place
from nuncius.broker.delivery.push.parts import FeedServices, FeedSettings
from nuncius.broker.delivery.subscriptions import Subscription
from nuncius.broker.delivery.tails import TailSlice
from nuncius.broker.queues.leases import clean
from nuncius.store.calls.acknowledging import (
    AcknowledgeCall,
    Acknowledgement,
    DeliverCall,
    EntrySpot,
)

BATCH = 500  # entries at a time
CONFIRM_SECONDS = 1.0  # how often the position of a subscriber that does not acknowledge is stored
LEFT = "the subscriber left before it was acknowledged"


class FeedLedger:
    def __init__(
        self, services: FeedServices, subscription: Subscription, cursor: Cursor, settings: FeedSettings
    ) -> None:
        self._services = services
        self.subscription = subscription
        self.cursor = cursor
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._outstanding = Outstanding()
        self._failures = Failures(services.retry_delay)
        self._wake = asyncio.Event()
        self._confirmed_at = 0.0
        self._redelivered: dict[int, int] = {}  # partition: offsets below may have been delivered before
        self._noted: dict[int, int] = {}  # partition: offsets below are noted as delivered, or about to be
        self._pushes = self._confirmed_pushes = 0  # to a subscriber that does not acknowledge

    @property
    def is_durable(self) -> bool:
        return self._settings.durable

    def room(self) -> int:
        """Return how many entries the subscriber may get."""
        if not self._settings.acknowledged:
            return BATCH
        return min(BATCH, self._settings.prefetch - len(self._outstanding))

    def wake(self) -> None:
        """Have the feed look for entries."""
        self._wake.set()

    # Acknowledgements of the subscriber

    def ack_soon(self, partition: int, offset: int, done: Callable[[Any], None], *, cumulative: bool) -> None:
        """Acknowledge this entry and, if cumulative, all that were pushed before it."""
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
        """Reject the same entries: each is redelivered, or becomes a dead letter."""
        taken, said = self.acknowledge(partition, offset, cumulative=cumulative, reason=reason)
        self._say(taken, said, done)

    def acknowledge(
        self, partition: int, offset: int, *, cumulative: bool, reason: str | None = None
    ) -> tuple[Mapping[Place, Given], Acknowledgement]:
        """Remove entries from the outstanding ones, and return the acknowledgement to store."""
        taken = self._outstanding.take(partition, offset, cumulative=cumulative)
        self._wake.set()
        return taken, self._words(taken, reason)

    def restore(self, taken: Mapping[Place, Given]) -> None:
        """Make entries outstanding again, because their acknowledgement was not stored."""
        self._outstanding.restore(taken)

    def failed(self, taken: Mapping[Place, Given], attempts: Sequence[int]) -> None:
        """Schedule the retries of failures that the store has noted."""
        self._failures.add(taken, attempts, self._loop.time())
        self._wake.set()

    def _words(self, taken: Mapping[Place, Given], reason: str | None) -> Acknowledgement:
        if reason is not None:
            failed = [self._spot(*place) for place in taken]
            return Acknowledgement(self, taken, failed, (), clean(reason) or "")
        again = [
            self._spot(*place)
            for place, given in taken.items()
            if given.attempts or self._failures.are_known_of(place)
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
        self._services.acknowledgements.submit(
            AcknowledgeCall(done or _ignore, self._settings.caller, me, said)
        )

    def _spot(self, partition: int, offset: int) -> EntrySpot:
        return EntrySpot(self.subscription.subscription_id, self.cursor.places[partition][0], offset)

    # The subscription's position (see `Ledger`)

    def reached(self, entries: Sequence[Mapping[Place, Given]]) -> Sequence[EntrySpot]:
        return [self._spot(*each) for each in self._outstanding.reached(entries).items()]

    def stored(self, entries: Sequence[Mapping[Place, Given]], positions: Sequence[EntrySpot]) -> None:
        now = [self._spot(*each) for each in self._outstanding.settle(entries).items()]
        self._failures.settle(entries)
        told = {spot.partition_id: spot.offset for spot in positions}
        # Another acknowledgement was stored at the same time: together they reach farther than each alone.
        ahead = [spot for spot in now if spot.offset > told[spot.partition_id]]
        if ahead:
            self._tell(Acknowledgement(confirmed=ahead))

    # What the store is told

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

    async def _note(self, found: TailSlice | None) -> None:
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


def _ignore(result: Any) -> None:
    """Do nothing: what could not be stored will be sent again, or is looked up again."""
