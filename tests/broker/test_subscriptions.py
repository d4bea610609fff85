"""Subscriptions through the broker: a place, a reader that goes on from it, and confirming."""

import asyncio
from typing import Any

import pytest

from broker.inside import readers, start
from nuncius.broker import Broker
from nuncius.broker.errors import InvalidInput, NoSuchSubscription, NoSuchTopic
from nuncius.broker.model import Cursor, Subscription
from nuncius.store.driver import Connection
from racing import until


async def confirm(broker: Broker, subscription: Subscription, position: int, partition: int = 1) -> None:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    broker.positions.confirm_soon(subscription, partition, position, future.set_result)
    result = await future
    if result is not None:
        raise result


async def read(reader: Cursor, count: int, limit: int = 100) -> list[bytes]:
    """The next entries, at least so many."""
    found: list[bytes] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += (await reader.next(limit)).entries.bodies
    return found


async def test_a_reader_begins_after_what_is_confirmed(broker: Broker) -> None:
    """Reading moves the reader; only confirming moves the subscription."""
    sue = await broker.subscriptions.subscribe("news", "sue")
    assert sue.created
    await broker.topics.publish("news", [b"0", b"1", b"2", b"3"])
    reader = await broker.subscriptions.cursor(sue)
    assert await read(reader, 4) == [b"0", b"1", b"2", b"3"]
    await confirm(broker, sue, 2)
    found = await broker.subscriptions.find("news", "sue")
    assert not found.created
    assert await read(await broker.subscriptions.cursor(found), 2) == [b"2", b"3"]


async def test_no_more_than_asked_for(broker: Broker) -> None:
    """A reader never gives more entries at a time than asked for, however many partitions have some."""
    await broker.topics.create("news", 4)
    sue = await broker.subscriptions.subscribe("news", "sue")
    for partition in range(1, 5):
        await broker.topics.publish("news", [b"%d" % n for n in range(10)], partition=partition)
    reader = await broker.subscriptions.cursor(sue)
    found: dict[int, list[bytes]] = {}
    for limit in (10, 1, 2, 3, *[4] * 9):
        if sum(map(len, found.values())) == 40:
            break
        piece = await reader.next(limit)
        partition, entries = piece.partition, piece.entries
        assert 1 <= len(entries.bodies) <= limit
        assert entries.first_offset == len(found.setdefault(partition, []))
        found[partition] += entries.bodies
    while sum(map(len, found.values())) < 40:
        piece = await reader.next(4)
        found.setdefault(piece.partition, []).extend(piece.entries.bodies)
    assert found == {n: [b"%d" % i for i in range(10)] for n in range(1, 5)}


async def test_partitions_take_turns(broker: Broker) -> None:
    """A partition with much does not keep the others waiting."""
    await broker.topics.create("news", 2)
    sue = await broker.subscriptions.subscribe("news", "sue")
    await broker.topics.publish("news", [b"busy"] * 500, partition=1)
    await broker.topics.publish("news", [b"quiet"], partition=2)
    reader = await broker.subscriptions.cursor(sue)
    first = [(await reader.next(10)).partition for _ in range(3)]
    assert 2 in first


async def test_confirm_errors(broker: Broker) -> None:
    """Beyond the end, in a partition that is not there, without a subscription: an error each."""
    sue = await broker.subscriptions.subscribe("news", "sue")
    with pytest.raises(InvalidInput, match="beyond"):
        await confirm(broker, sue, 1)
    with pytest.raises(InvalidInput, match="partition"):
        await confirm(broker, sue, 0, 2)
    await confirm(broker, sue, 0)
    await broker.subscriptions.unsubscribe("news", "sue")
    with pytest.raises(NoSuchSubscription):
        await confirm(broker, sue, 0)
    with pytest.raises(NoSuchSubscription):
        await broker.subscriptions.unsubscribe("news", "sue")
    with pytest.raises(NoSuchSubscription):
        await broker.subscriptions.find("news", "sue")


async def test_the_end_of_a_subscription(broker: Broker) -> None:
    """A reader that waits is told when its subscription ends, and when its topic is deleted."""
    sue = await broker.subscriptions.subscribe("news", "sue")
    tom = await broker.subscriptions.subscribe("other", "tom")
    ended = start((await broker.subscriptions.cursor(sue)).next(10))
    deleted = start((await broker.subscriptions.cursor(tom)).next(10))
    await until(lambda: readers(broker) == 2)
    await broker.subscriptions.unsubscribe("news", "sue")
    await broker.topics.delete("other")
    async with asyncio.timeout(60):
        with pytest.raises(NoSuchSubscription):
            await ended
        with pytest.raises(NoSuchTopic, match="'other' was deleted"):
            await deleted


async def test_what_ended_is_named(broker: Broker) -> None:
    """A reader that looks for its place again says whether the topic is gone or only the subscription."""
    reader = await broker.subscriptions.cursor(await broker.subscriptions.subscribe("news", "sue"))
    await broker.subscriptions.unsubscribe("news", "sue")
    with pytest.raises(NoSuchSubscription, match="'sue' is not subscribed to 'news' any more"):
        await reader.find_places()
    await broker.topics.delete("news")
    with pytest.raises(NoSuchTopic, match="'news' was deleted"):
        await reader.find_places()


async def test_lists(broker: Broker) -> None:
    """Subscriptions are listed with their lag, by topic or by subscriber."""
    sue = await broker.subscriptions.subscribe("news", "sue", holds_retention=True)
    await broker.subscriptions.subscribe("other", "sue")
    await broker.topics.publish("news", [b"x"] * 5)
    await confirm(broker, sue, 2)
    (info,) = await broker.subscriptions.list("news")
    assert (info.subscriber, info.lag, info.holds_retention) == ("sue", 3, True)
    assert [each.topic for each in await broker.subscriptions.list(None, "sue")] == ["news", "other"]


async def test_names_of_jobs(broker: Broker, connection: Connection) -> None:
    """The broker refuses to make, read or move a subscription of a job; it shows it and can end it."""
    topic = await connection.fetchval("select nuncius.create_topic('news')")
    await connection.fetch("select nuncius.follow($1, 'archive', 'earliest', true, true)", [topic])
    name = "nuncius:archive"
    for refused in (
        broker.subscriptions.subscribe("news", name),
        broker.subscriptions.find("news", name),
        broker.pubsub.subscribe("news", name),
        broker.groups.join("news", name, "member", 30),
    ):
        with pytest.raises(InvalidInput, match="reserved for jobs"):
            await refused
    with pytest.raises(InvalidInput, match="reserved for jobs"):
        broker.pubsub.get_soon("news", name, 0, print)
    assert (await broker.subscriptions.look_up("news", name)).subscriber == name
    await broker.subscriptions.unsubscribe("news", name)
    assert await broker.subscriptions.list("news") == []
