"""What every way of delivering a topic's entries promises: nothing is missed, entries of a partition come in
order, a redelivered entry is marked as such, and a position never goes back except by a seek."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from broker.delivery.surfaces import NAME, SURFACES, TOPIC, Consumed, Delivered, Pushed, Surface
from broker.inside import everything, start
from nuncius.broker import Broker
from nuncius.broker.errors import NotFound
from nuncius.store.driver import Connection
from racing import terminate, until

each_surface = pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.__name__)
CONFIRMED = [surface for surface in SURFACES if not surface.confirms_alone]
some_partitions = pytest.mark.parametrize("partitions", [1, 3])


async def publish(broker: Broker, first: int, count: int) -> list[bytes]:
    bodies = [b"%d" % n for n in range(first, first + count)]
    await broker.topics.publish(TOPIC, bodies, keys=[f"{n % 7}" for n in range(first, first + count)])
    return bodies


async def read(session: Surface, count: int, *, confirming: bool = True) -> list[Delivered]:
    """The next entries, at least so many; each step is confirmed before the next one."""
    found: list[Delivered] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            new = await session.next()
            if confirming:
                await session.confirm(new)
            found += new
    return found


async def assert_in_order(broker: Broker, delivered: Sequence[Delivered], partitions: int) -> None:
    """Entries of each partition came in its order."""
    bodies = [each.body for each in delivered]
    for partition in range(1, partitions + 1):
        stored = await everything(broker, TOPIC, partition)
        mine = set(stored)
        assert [body for body in bodies if body in mine] == stored


async def positions(session: Surface) -> dict[int, int]:
    return await session.broker.positions.of(await session.subscription())


@each_surface
@some_partitions
async def test_nothing_is_missed(broker: Broker, surface: type[Surface], partitions: int) -> None:
    """Entries that are published while a subscriber reads all come, once, and in order within a partition;
    in the end everything is confirmed."""
    await broker.topics.create(TOPIC, partitions)
    session = await surface.open(broker)
    reading = start(read(session, 120))
    sent = []
    for n in range(0, 120, 4):
        sent += await publish(broker, n, 4)
    delivered = await reading
    assert Counter(each.body for each in delivered) == Counter(sent)
    await assert_in_order(broker, delivered, partitions)
    assert not any(each.redelivered for each in delivered)

    async def all_confirmed() -> bool:
        name = (await session.subscription()).subscriber
        return [info.lag for info in await broker.subscriptions.list(TOPIC, name)] == [0]

    await until(all_confirmed)


@each_surface
@some_partitions
async def test_sessions_that_follow_each_other(
    broker: Broker, second: Broker, surface: type[Surface], partitions: int
) -> None:
    """A subscriber that comes back, at whichever node, goes on behind what it has confirmed: nothing is
    missed, and nothing that was confirmed is delivered again."""
    await broker.topics.create(TOPIC, partitions)
    session = await surface.open(broker)
    sent = await publish(broker, 0, 10)
    confirmed: list[Delivered] = []
    nodes = (broker, second)
    for n in range(1, 9):
        confirmed += await read(session, 3)
        sent += await publish(nodes[n // 2 % 2], 10 * n, 5)
        confirmed += await session.leave()
        session = await surface.open(nodes[n % 2], session)
    confirmed += await read(session, len(sent) - len(confirmed))
    assert Counter(each.body for each in confirmed) == Counter(sent)
    await assert_in_order(broker, confirmed, partitions)


@pytest.mark.parametrize("surface", CONFIRMED, ids=lambda surface: surface.__name__)
async def test_what_is_not_confirmed_comes_again(
    broker: Broker, second: Broker, surface: type[Surface]
) -> None:
    """Entries that a session did not confirm are delivered to the next one, at another node, and marked as
    redelivered where the protocol says so."""
    await broker.topics.create(TOPIC)
    session = await surface.open(broker)
    await publish(broker, 0, 6)
    first = await session.next()
    await session.confirm(first[:1])
    if len(first) < 2:  # one entry at a time
        first = [*first, *await session.next()]
    await session.leave()
    again = await read(await surface.open(second, session), 5, confirming=surface is not Pushed)
    assert [each.body for each in again] == [b"1", b"2", b"3", b"4", b"5"]
    if surface is Pushed:
        assert [each.redelivered for each in again] == [n + 1 < len(first) for n in range(5)]


@each_surface
async def test_a_position_never_goes_back(broker: Broker, surface: type[Surface]) -> None:
    """A confirmation that comes late, or twice, leaves the position where it is."""
    await broker.topics.create(TOPIC)
    session = await surface.open(broker)
    await publish(broker, 0, 8)
    delivered = await read(session, 8)
    assert len(delivered) == 8
    await until(lambda: is_at(session, {1: 8}))
    for each in delivered[:3]:
        await session.confirm_earlier(each)
        assert await positions(session) == {1: 8}
    await publish(broker, 8, 1)
    assert [each.body for each in await read(session, 1)] == [b"8"]


async def is_at(session: Surface, expected: dict[int, int]) -> bool:
    """Whether the subscription stands there. Seldom below: some confirm after they have delivered."""
    found = await positions(session)
    assert all(found[partition] <= expected[partition] for partition in found)
    return found == expected


async def test_acknowledged_in_any_order(broker: Broker) -> None:
    """Where entries are acknowledged singly, a position passes one when everything before it is confirmed."""
    await broker.topics.create(TOPIC)
    session = await Pushed.open(broker)
    await publish(broker, 0, 4)
    delivered = await read(session, 4, confirming=False)
    for n, expected in ((2, 0), (0, 1), (3, 1), (1, 4)):
        await session.confirm([delivered[n]])
        assert await positions(session) == {1: expected}


@each_surface
async def test_a_seek(broker: Broker, surface: type[Surface]) -> None:
    """A seek back, and nothing else, makes entries come again that were confirmed; a seek forward passes
    over entries."""
    await broker.topics.create(TOPIC)
    session = await surface.open(broker)
    sent = await publish(broker, 0, 5)
    await read(session, 5)
    await until(lambda: is_at(session, {1: 5}))
    await session.leave()
    subscription = await session.subscription()
    await broker.positions.seek(subscription, {1: 1})
    session = await surface.open(broker, session)
    assert [each.body for each in await read(session, 4)] == sent[1:]
    await until(lambda: is_at(session, {1: 5}))
    await session.leave()
    await publish(broker, 5, 3)
    await broker.positions.seek(subscription, {1: 7})
    session = await surface.open(broker, session)
    assert [each.body for each in await read(session, 1)] == [b"7"]


@each_surface
async def test_news_from_another_node(broker: Broker, second: Broker, surface: type[Surface]) -> None:
    """A session that waits gets an entry that was published at another node, without a poll; one that asks
    finds it at once."""
    await broker.topics.create(TOPIC)
    session = await surface.open(second)
    for n in range(3):
        reading = start(read(session, 1)) if surface.waits else None
        await publish(broker, n, 1)
        delivered = await (reading or read(session, 1))
        assert [each.body for each in delivered] == [b"%d" % n]


@each_surface
async def test_a_topic_that_grows(broker: Broker, second: Broker, surface: type[Surface]) -> None:
    """Partitions that are added while a session reads are read from their first entry."""
    await broker.topics.create(TOPIC)
    session = await surface.open(broker)
    await publish(broker, 0, 3)
    assert len(await read(session, 3)) == 3
    await second.topics.grow(TOPIC, 3)
    for partition in (1, 2, 3):
        await second.topics.publish(TOPIC, [b"new %d" % partition], partition=partition)
    assert {each.body for each in await read(session, 3)} == {b"new 1", b"new 2", b"new 3"}


@each_surface
async def test_purged_entries(broker: Broker, second: Broker, surface: type[Surface]) -> None:
    """Entries that were purged before they were delivered are passed over, however they are cached."""
    await broker.topics.create(TOPIC)
    session = await surface.open(broker)
    await publish(broker, 0, 2)
    assert len(await read(session, 2)) == 2
    await session.leave()
    await publish(broker, 2, 3)
    await broker.topics.purge(TOPIC)
    await second.topics.publish(TOPIC, [b"after"])
    session = await surface.open(broker, session)
    assert [each.body for each in await read(session, 1)] == [b"after"]


@each_surface
async def test_the_end_of_a_subscription(broker: Broker, surface: type[Surface]) -> None:
    """A session that reads is told when its subscription ends."""
    await broker.topics.create(TOPIC)
    session = await surface.open(broker)
    await publish(broker, 0, 1)
    await read(session, 1)
    reading = start(read(session, 1))
    await asyncio.sleep(0)  # it has begun to wait
    await broker.subscriptions.unsubscribe(TOPIC, (await session.subscription()).subscriber)
    with pytest.raises(NotFound):
        await reading


@each_surface
@some_partitions
async def test_the_store_breaks(
    broker: Broker, observer: Connection, surface: type[Surface], partitions: int
) -> None:
    """When the connections to the store break again and again, nothing is missed, delivered twice within a
    session, or out of order."""
    await broker.topics.create(TOPIC, partitions)
    session = await surface.open(broker)
    sent = await publish(broker, 0, 60)
    delivered: list[Delivered] = []

    async def read_all() -> None:
        while len(delivered) < len(sent):
            new = await session.next()
            await session.confirm(new)
            delivered.extend(new)

    reading = start(read_all())
    while not reading.done():
        for name in ("fetch", "confirm", "advance", "unread", "get", "deliver", "acknowledge"):
            await terminate(observer, f"nuncius {name}")
        before = len(delivered)
        await until(lambda before=before: reading.done() or len(delivered) > before)  # type: ignore[misc]
    await reading
    assert Counter(each.body for each in delivered) == Counter(sent)
    await assert_in_order(broker, delivered, partitions)


async def test_every_subscriber_gets_everything(broker: Broker) -> None:
    """Subscribers of one topic have positions of their own, whatever way each of them reads."""
    await broker.topics.create(TOPIC, 2)
    sessions = [await surface.open(broker) for surface in (Consumed, Consumed, Pushed)]
    sent = await publish(broker, 0, 30)
    for session in sessions:
        delivered = await read(session, 30)
        assert Counter(each.body for each in delivered) == Counter(sent)
    assert NAME in [info.subscriber for info in await broker.subscriptions.list(TOPIC)]
