"""Consuming one message at a time, for consumers that cannot acknowledge: the consumers of this node."""

from collections import OrderedDict

from nuncius.broker import future
from nuncius.broker.background.actors import CONSUMER, Actors, NumberedConsumer
from nuncius.broker.background.tasks import BackgroundWork
from nuncius.broker.caller import NODE, Caller
from nuncius.broker.delivery.positions import Positions
from nuncius.broker.delivery.pull_one import Puller
from nuncius.broker.delivery.pull_requests import PullServices
from nuncius.broker.delivery.tails import Tails
from nuncius.broker.topics.topics import Topics
from nuncius.store.calls.unread import recall, unread
from nuncius.store.store import Store

MOST_CONSUMERS = 10_000  # whose positions are remembered


class Consuming:
    def __init__(
        self, store: Store, topics: Topics, tails: Tails, actors: Actors, positions: Positions
    ) -> None:
        self._actors = actors
        self._pullers: OrderedDict[int, Puller] = OrderedDict()  # the longest silent first
        self._background = BackgroundWork()
        self._services = PullServices(
            tails,
            positions.advance,
            store.combiner("unread", unread),
            store.combiner("recall", recall),
            topics.existing,
            self._background.start,
            self._forget_consumer,
        )

    async def consume(
        self, consumer: NumberedConsumer, *, key: str | None = None, caller: Caller = NODE
    ) -> bytes | None:
        """Consume the next message of any partition. Return its body, or None if there is none. A second
        request with the same key gets the same message."""
        self._actors.touch(CONSUMER, consumer.consumer_id)
        puller = self._pullers.get(consumer.consumer_id)
        if puller is None or puller.consumer != consumer:
            puller = self._pullers[consumer.consumer_id] = Puller(consumer, self._services, caller)
            self._make_room()
        self._pullers.move_to_end(consumer.consumer_id)
        consumed, done = future.new()
        puller.ask(done, key)
        return await consumed  # type: ignore[no-any-return]

    def look_again(self) -> None:
        """Look up the partitions again: some may have been added or deleted."""
        for puller in self._pullers.values():
            puller.begin_anew()

    async def drain(self) -> None:
        await self._background.drain()

    def _forget_consumer(self, consumer_id: int) -> None:
        self._actors.consumers.forget(str(consumer_id))
        self._pullers.pop(consumer_id, None)

    def _make_room(self) -> None:
        """Forget the longest silent consumers: the store knows where they are."""
        while len(self._pullers) > MOST_CONSUMERS:
            silent = next((each for each in self._pullers.values() if each.is_idle), None)
            if silent is None:
                return
            del self._pullers[silent.consumer.consumer_id]
