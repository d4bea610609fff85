"""Consuming one message at a time, for consumers that cannot acknowledge: the readings of this node."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from nuncius.broker import future
from nuncius.broker.background.actors import CONSUMER, Actors, NumberedConsumer
from nuncius.broker.background.signals import Signals
from nuncius.broker.caller import NODE, Caller
from nuncius.broker.delivery.positions import Positions
from nuncius.broker.delivery.reading import Puller
from nuncius.broker.delivery.reading_parts import PullServices
from nuncius.broker.topics.topics import Topics
from nuncius.store.calls.unread import recall, unread
from nuncius.store.store import Store

MAX_BYTES = 64 << 20  # of all entries that are read ahead
MOST_CONSUMERS = 10_000  # whose positions are remembered


class Consuming:
    def __init__(
        self, store: Store, topics: Topics, actors: Actors, positions: Positions, signals: Signals
    ) -> None:
        self._topics = topics
        self._actors = actors
        self._readings: OrderedDict[int, Puller] = OrderedDict()  # the longest silent first
        self._bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._means = PullServices(
            positions.advance,
            store.combiner("unread", unread),
            store.combiner("recall", recall),
            topics.existing,
            topics.fetch,
            signals.version,
            self._start,
            self._account,
            self._forget_consumer,
        )

    def consume_soon(
        self,
        consumer: NumberedConsumer,
        done: Callable[[Any], None],
        *,
        key: str | None = None,
        caller: Caller = NODE,
    ) -> None:
        """Consume the next message of any partition. `done` gets its body, None if there is none, or an
        exception. A second request with the same key gets the same message."""
        self._actors.touch(CONSUMER, consumer.consumer_id)
        reading = self._readings.get(consumer.consumer_id)
        if reading is None or reading.consumer != consumer:
            self._forget_reading(consumer.consumer_id)
            reading = self._readings[consumer.consumer_id] = Puller(consumer, self._means, caller)
            self._make_room()
        else:
            self._readings.move_to_end(consumer.consumer_id)
        reading.ask(done, key)

    async def consume(
        self, consumer: NumberedConsumer, *, key: str | None = None, caller: Caller = NODE
    ) -> bytes | None:
        consumed, done = future.new()
        self.consume_soon(consumer, done, key=key, caller=caller)
        return await consumed  # type: ignore[no-any-return]

    def look_again(self) -> None:
        """Look up the partitions again: some may have been added or deleted."""
        for reading in self._readings.values():
            reading.begin_anew()

    async def drain(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget_consumer(self, consumer_id: int) -> None:
        self._actors.consumers.forget(str(consumer_id))
        self._forget_reading(consumer_id)

    def _forget_reading(self, consumer_id: int) -> None:
        reading = self._readings.pop(consumer_id, None)
        if reading is not None:
            self._bytes -= reading.bytes
            reading.bytes = 0

    def _account(self, size: int) -> None:
        """Add to the bytes that are read ahead. A negative number frees them."""
        self._bytes += size
        self._make_room()

    def _make_room(self) -> None:
        """Drop what was read ahead for the longest silent consumers. It can be read again."""
        while self._readings and (self._bytes > MAX_BYTES or len(self._readings) > MOST_CONSUMERS):
            silent = next((each for each in self._readings.values() if each.is_idle), None)
            if silent is None:
                return
            self._forget_reading(silent.consumer.consumer_id)
