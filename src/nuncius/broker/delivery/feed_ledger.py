"""The acknowledgements of a feed's subscriber, and the subscription's position that results from them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heappush
from typing import Any

from nuncius.broker.delivery.cursor import Cursor
from nuncius.broker.delivery.feed_parts import FeedServices, Settings
from nuncius.broker.delivery.outstanding import Given, Outstanding, Place
from nuncius.broker.delivery.subscriptions import Subscription
from nuncius.broker.queues.leases import clean
from nuncius.store.calls.acknowledging import AcknowledgeCall, Acknowledgement, Spot


class FeedLedger:
    def __init__(
        self, services: FeedServices, subscription: Subscription, cursor: Cursor, settings: Settings
    ) -> None:
        self._services = services
        self.subscription = subscription
        self.cursor = cursor
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._outstanding = Outstanding()
        self._retries: list[tuple[float, int, int, int]] = []  # when, partition, offset, attempts: a heap
        self._failed_before: set[Place] = set()  # failed entries that the position has not passed yet
        self._wake = asyncio.Event()

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
        return Spot(self.subscription.subscription_id, self.cursor.places[partition][0], offset)

    # The subscription's position (see `Ledger`)

    def reached(self, entries: Sequence[Mapping[Place, Given]]) -> Sequence[Spot]:
        return [self._spot(*each) for each in self._outstanding.reached(entries).items()]

    def stored(self, entries: Sequence[Mapping[Place, Given]], positions: Sequence[Spot]) -> None:
        now = [self._spot(*each) for each in self._outstanding.settle(entries).items()]
        if self._failed_before:
            self._failed_before.difference_update(*entries)
        told = {spot.partition_id: spot.offset for spot in positions}
        # Another acknowledgement was stored at the same time: together they reach farther than each alone.
        ahead = [spot for spot in now if spot.offset > told[spot.partition_id]]
        if ahead:
            self._tell(Acknowledgement(confirmed=ahead))


def _ignore(result: Any) -> None:
    """Do nothing: what could not be stored will be sent again, or is looked up again."""
