"""What a subscriber says of the entries that it was given, and what the store is told of its place."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heappush
from typing import Any

from nuncius.broker.delivery.feed_parts import FeedServices, Settings
from nuncius.broker.delivery.outstanding import Given, Outstanding, Place
from nuncius.broker.delivery.subscriptions import Reader, Subscription
from nuncius.broker.queues.leases import clean
from nuncius.store.calls.acknowledging import AcknowledgeCall, Acknowledgement, Spot


class FeedLedger:
    def __init__(
        self, services: FeedServices, subscription: Subscription, reader: Reader, settings: Settings
    ) -> None:
        self._services = services
        self.subscription = subscription
        self.reader = reader
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._outstanding = Outstanding()
        self._retries: list[tuple[float, int, int, int]] = []  # when, partition, offset, attempts: a heap
        self._failed_before: set[Place] = set()  # and the place has not passed them yet
        self._wake = asyncio.Event()

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
        due = self._loop.time() + self._services.retry_delay
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
        self._services.acknowledgements.submit(
            AcknowledgeCall(done or _ignore, self._settings.caller, me, said)
        )

    def _spot(self, partition: int, offset: int) -> Spot:
        return Spot(self.subscription.subscription_id, self.reader.places[partition][0], offset)

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


def _ignore(result: Any) -> None:
    """What could not be stored will be said again, or is true again when it is looked up."""
