"""Sessions of one subscriber, through every way in which the broker delivers a topic's entries.

A surface adapts one way to the same few steps, so that `test_contract` says once what all of them promise.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from broker.acknowledging import Inbox, ack, subscriber
from nuncius.broker import Broker, future
from nuncius.broker.background.actors import NumberedConsumer
from nuncius.broker.model import Cursor, Feed, FoundEntry, Subscription
from racing import until

TOPIC, NAME = "news", "sue"


class Delivered(NamedTuple):
    """A delivered entry. Surfaces that do not tell its place or whether it is redelivered leave that out."""

    body: bytes
    partition: int = 0
    offset: int = -1
    redelivered: bool | None = None


class Surface(ABC):
    """A session of a subscriber at a node."""

    waits: ClassVar[bool] = True
    """The session waits for entries, rather than to ask again and again."""
    confirms_alone: ClassVar[bool] = False
    """A delivered entry counts as confirmed."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    @classmethod
    async def open(cls, broker: Broker, before: "Surface | None" = None) -> Self:
        """Begin a session; `before` is an earlier one of the same subscriber."""
        session = cls(broker)
        await session.begin(before)
        return session

    @abstractmethod
    async def begin(self, before: "Surface | None") -> None: ...

    @abstractmethod
    async def next(self) -> Sequence[Delivered]:
        """Wait for the next entries."""

    async def confirm(self, delivered: Sequence[Delivered]) -> None:
        """Confirm these, and with them everything before."""
        assert self.confirms_alone, delivered

    async def confirm_earlier(self, delivered: Delivered) -> None:
        """Confirm once more what was confirmed before, though later entries are confirmed."""
        assert not self.waits or isinstance(self, Pushed), delivered

    async def leave(self) -> Sequence[Delivered]:
        """End the session, as after a crash of the client: nothing more is confirmed. Return entries that
        were delivered, and so confirmed, and not asked for."""
        return ()

    async def subscription(self) -> Subscription:
        return await self.broker.subscriptions.look_up(TOPIC, NAME)


class Pushed(Surface):
    """A feed with acknowledgements."""

    acknowledged: ClassVar[bool] = True
    inbox: Inbox
    feed: Feed

    async def begin(self, before: Surface | None) -> None:
        del before
        self._seen = 0
        self.inbox, self.feed = await subscriber(
            self.broker, TOPIC, NAME, durable=True, acknowledged=self.acknowledged, start="earliest"
        )

    async def next(self) -> Sequence[Delivered]:
        await until(lambda: len(self.inbox.got) > self._seen or self.inbox.broken)
        if self.inbox.broken:
            raise self.inbox.broken[0]
        new = self.inbox.got[self._seen :]
        self._seen += len(new)
        return [Delivered(body, partition, offset, again) for partition, offset, body, _, again in new]

    async def confirm(self, delivered: Sequence[Delivered]) -> None:
        await asyncio.gather(*(ack(self.feed, each.offset, each.partition) for each in delivered))

    async def leave(self) -> Sequence[Delivered]:
        await self.feed.close()
        return ()


class PushedWithoutAcknowledgement(Pushed):
    """A feed whose entries count as received when they are pushed."""

    acknowledged = False
    confirms_alone = True

    async def confirm(self, delivered: Sequence[Delivered]) -> None:
        await Surface.confirm(self, delivered)

    async def leave(self) -> Sequence[Delivered]:
        await self.feed.close()
        return await self.next() if len(self.inbox.got) > self._seen else ()


def behind(delivered: Sequence[Delivered]) -> Mapping[int, int]:
    """The positions behind these entries, by partition."""
    positions: dict[int, int] = {}
    for each in delivered:
        positions[each.partition] = max(positions.get(each.partition, 0), each.offset + 1)
    return positions


class Read(Surface):
    """A cursor, and positions that its client confirms."""

    cursor: Cursor

    async def begin(self, before: Surface | None) -> None:
        if before is None:
            await self.broker.subscriptions.subscribe(TOPIC, NAME, start="earliest")
        found = await self.broker.subscriptions.find(TOPIC, NAME)
        self.cursor = await self.broker.subscriptions.cursor(found)

    async def next(self) -> Sequence[Delivered]:
        found = await self.cursor.next(100)
        return [
            Delivered(body, found.partition, found.first_offset + n)
            for n, body in enumerate(found.entries.bodies)
        ]

    async def confirm(self, delivered: Sequence[Delivered]) -> None:
        found = await self.subscription()
        for partition, position in behind(delivered).items():
            confirmed, done = future.new()
            self.broker.positions.confirm_soon(found, partition, position, done)
            await confirmed

    async def confirm_earlier(self, delivered: Delivered) -> None:
        await self.confirm([delivered])


class ReadAsMember(Surface):
    """A group with one member."""

    member: int
    generation: int

    async def begin(self, before: Surface | None) -> None:
        if before is None:
            await self.broker.subscriptions.subscribe(TOPIC, NAME, start="earliest")
        self.member = await self.broker.groups.join(TOPIC, NAME, "m", 60)

    async def next(self) -> Sequence[Delivered]:
        portion = await self.broker.groups.read(self.member, 100, wait=60)
        self.generation = portion.generation
        return [
            Delivered(body, piece.partition, piece.first_offset + n)
            for piece in portion.entries
            for n, body in enumerate(piece.entries.bodies)
        ]

    async def confirm(self, delivered: Sequence[Delivered]) -> None:
        positions = behind(delivered)
        await self.broker.groups.confirm(self.member, self.generation, [*positions], [*positions.values()])

    async def confirm_earlier(self, delivered: Delivered) -> None:
        await self.confirm([delivered])

    async def leave(self) -> Sequence[Delivered]:
        await self.broker.groups.leave(self.member)
        return ()


class Consumed(Surface):
    """A consumer that gets one entry at a time and cannot acknowledge."""

    waits = False
    confirms_alone = True
    consumer: NumberedConsumer

    async def begin(self, before: Surface | None) -> None:
        if isinstance(before, Consumed):
            self.consumer = before.consumer
        else:
            number = await self.broker.actors.register_consumer(TOPIC)
            self.consumer = await self.broker.actors.consumers.find(str(number))

    async def next(self) -> Sequence[Delivered]:
        bodies: list[bytes] = []

        async def consumed() -> bool:
            body = await self.broker.consuming.consume(self.consumer)
            bodies.extend([] if body is None else [body])
            return body is not None

        await until(consumed)
        return [Delivered(body) for body in bodies]

    async def subscription(self) -> Subscription:
        name = f"http-consumer-{self.consumer.consumer_id}"
        return await self.broker.subscriptions.look_up(TOPIC, name)


class AskedById(Surface):
    """A subscriber that names the id it wants next."""

    id: int

    async def begin(self, before: Surface | None) -> None:
        del before
        _, last_id = await self.broker.pubsub.subscribe(TOPIC, NAME)
        self.id = last_id + 1

    async def _get(self, entry_id: int, wait: float) -> FoundEntry:
        got, done = future.new()
        self.broker.pubsub.get_soon(TOPIC, NAME, entry_id, done, wait=wait)
        found: Any = await got
        assert isinstance(found, FoundEntry)
        return found

    async def next(self) -> Sequence[Delivered]:
        found = await self._get(self.id, 60)
        assert found.body is not None
        self.id += 1
        return [Delivered(found.body, offset=self.id - 1)]

    async def confirm(self, delivered: Sequence[Delivered]) -> None:
        await self._get(delivered[-1].offset + 1, 0)

    async def confirm_earlier(self, delivered: Delivered) -> None:
        await self._get(delivered.offset, 0)


SURFACES: Sequence[type[Surface]] = (
    Pushed,
    PushedWithoutAcknowledgement,
    Read,
    ReadAsMember,
    Consumed,
    AskedById,
)
