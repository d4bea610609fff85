"""A subscriber of a topic. The broker's feed delivers entries; this module turns them into frames."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from nuncius.broker.errors import InvalidInput
from nuncius.broker.model import Feed, PushedSlice, Transaction
from nuncius.doors.stomp.frames.rendering import FrameTails, entry_id, now_ms, redelivery_lines, tails
from nuncius.doors.stomp.subscriptions.consumer import StompConsumer
from nuncius.doors.stomp.subscriptions.unacknowledged import Delivery, Unacknowledged

CATCH_UP_MESSAGES = 1000
CATCH_UP_SECONDS = 5.0  # for clients that do not read

Place = tuple[int, int]  # partition, offset


class TopicSubscription:
    def __init__(self, consumer: StompConsumer) -> None:
        self._consumer = consumer
        self._unacknowledged: Unacknowledged[Place] = Unacknowledged(cumulative=consumer.is_cumulative)
        self._feed: Feed | None = None
        self._is_over = False

    async def start(self, topic: str, subscriber: str, *, start: str, durable: bool, prefetch: int) -> None:
        consumer = self._consumer
        self._feed = await consumer.broker.feeds.open(
            topic,
            subscriber,
            self._push,
            start=start,
            durable=durable,
            acknowledged=consumer.is_acknowledged,
            prefetch=prefetch,
            gate=consumer.carrier.replies,
            caller=consumer.carrier.caller,
            ended=consumer.ended,
        )

    @property
    def feed(self) -> Feed:
        assert self._feed is not None
        return self._feed

    # Sending

    def _push(self, batch: PushedSlice) -> None:
        if self._is_over:
            return
        consumer, chunk = self._consumer, batch.chunk
        made = tails(chunk, self.feed.subscription.topic.topic_id, batch.partition, consumer.version)
        first = chunk.entries.first_offset + batch.start
        if consumer.is_acknowledged or made.expires or batch.attempts or first < batch.redelivered_to:
            self._push_singly(batch, made)
        else:
            consumer.carrier.send(consumer.head.join([b"", *made.frames[batch.start : batch.end]]))

    def _push_singly(self, batch: PushedSlice, made: FrameTails) -> None:
        consumer, partition = self._consumer, batch.partition
        frames, now = [], now_ms()
        for at in range(batch.start, batch.end):
            offset = batch.chunk.entries.first_offset + at
            if made.expires and 0 < made.expires[at] <= now:
                if consumer.is_acknowledged:
                    self.feed.ack_soon(partition, offset, _ignore, cumulative=False)
                continue
            frames.append(consumer.head)
            if consumer.is_acknowledged:
                known_as = entry_id(self.feed.subscription.topic.topic_id, partition, offset)
                ack_id, line = consumer.ack_id(f"{partition}-{offset}", known_as)
                self._unacknowledged.add(ack_id, (partition, offset))
                frames.append(line)
            if offset < batch.redelivered_to:
                frames.append(redelivery_lines(batch.attempts))
            frames.append(made.frames[at])
        if frames:
            consumer.carrier.send(b"".join(frames))

    # Acknowledgements

    def __contains__(self, ack_id: str) -> bool:
        return ack_id in self._unacknowledged

    def claim(self, ack_id: str, *, by_transaction: bool) -> list[Delivery[Place]]:
        return self._unacknowledged.claim(ack_id, by_transaction=by_transaction)

    def acknowledge(
        self, claimed: Sequence[Delivery[Place]], reason: str | None, done: Callable[[Any], None]
    ) -> None:
        """Acknowledge the claimed entries, or reject them as failed if there is a reason."""
        cumulative, places = self._together(claimed, 0)
        finish = partial(_count_down, [len(places)], done)
        for partition, offset in places:
            try:
                if reason is None:
                    self.feed.ack_soon(partition, offset, finish, cumulative=cumulative)
                else:
                    self.feed.nack_soon(partition, offset, finish, cumulative=cumulative, reason=reason)
            except InvalidInput as error:
                finish(error)

    def add_to(
        self, transaction: Transaction, claimed: Sequence[Delivery[Place]], reason: str | None
    ) -> None:
        cumulative, places = self._together(claimed, len(claimed))
        for partition, offset in places:
            if reason is None:
                transaction.ack(self.feed, partition, offset, cumulative=cumulative)
            else:
                transaction.nack(self.feed, partition, offset, cumulative=cumulative, reason=reason)

    def _together(self, claimed: Sequence[Delivery[Place]], own: int) -> tuple[bool, list[Place]]:
        """Return whether one cumulative acknowledgement is enough, and the places to name. The last place is
        enough, unless some before it belong to an open transaction that may still be aborted."""
        if self._unacknowledged.is_cumulative and self._unacknowledged.claimed == own:
            return True, [claimed[-1].place]
        return False, [delivery.place for delivery in claimed]

    def committed(self, claimed: Sequence[Delivery[Place]]) -> None:
        self._unacknowledged.claimed -= len(claimed)

    def restore(self, claimed: Sequence[Delivery[Place]]) -> None:
        """Restore deliveries whose transaction was aborted."""
        self._unacknowledged.claimed -= len(claimed)
        if not self._is_over:
            self._unacknowledged.restore(claimed)

    # The end

    async def catch_up(self) -> None:
        """Send the entries that are stored now, up to CATCH_UP_MESSAGES."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await self.feed.catch_up(CATCH_UP_MESSAGES)

    async def close(self, reason: str | None) -> None:
        """End the delivery. Unacknowledged entries are redelivered to a durable subscriber."""
        if not self._is_over:
            self._is_over = True
            self._unacknowledged.clear()
            if self._feed is not None:
                await self._feed.close(reason)

    def stop(self, reason: str | None) -> None:
        self._consumer.background.start(self.close(reason))


def _count_down(left: list[int], done: Callable[[Any], None], result: Any) -> None:
    """Call `done` with the first failure, or after all have succeeded."""
    if left[0] > 0:
        left[0] = 0 if isinstance(result, Exception) else left[0] - 1
        if left[0] == 0:
            done(result)


def _ignore(result: Any) -> None:
    """Ignore the result: an expired entry that was not acknowledged is redelivered and expires again."""
