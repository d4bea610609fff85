"""Topics through the broker: publishing, reading, and looking after them."""

import asyncio
from typing import Any

import pytest

from broker.inside import everything, readers, start
from nuncius.broker import Broker
from nuncius.broker.errors import AlreadyExists, CallFailed, InvalidInput, NoSuchTopic, OutcomeUnknown
from nuncius.broker.model import Retention
from nuncius.store.calls.publishing import partition_of
from nuncius.store.driver import Connection
from racing import until, until_somebody_waits

KEYS = [f"key {n}" for n in range(20)]


async def test_publish_and_fetch(broker: Broker) -> None:
    """Publishing makes the topic; entries come back with keys, headers and times."""
    placed = await broker.topics.publish("news", [b"a", b"b"], keys=["k", None], headers=[None, '{"h": "1"}'])
    assert (placed.partition, placed.offset, placed.skipped) == (1, 0, 0)
    topic = await broker.topics.existing("news")
    entries = await broker.topics.fetch(topic, 1, 0, 10)
    assert entries is not None
    assert (entries.first_offset, entries.bodies) == (0, [b"a", b"b"])
    assert (entries.keys, entries.headers) == (["k", None], [None, '{"h": "1"}'])
    assert all(time > 1_600_000_000_000_000 for time in entries.times)
    assert entries.next_offset == 2
    assert await broker.topics.fetch(topic, 1, 2, 10) is None


async def test_many_at_once(broker: Broker) -> None:
    """Calls that are made together are stored together, each with an offset of its own."""
    placed = await asyncio.gather(*(broker.topics.publish("news", [b"%d" % n]) for n in range(300)))
    assert sorted(p.offset for p in placed) == list(range(300))
    found = await everything(broker, "news")
    assert [found[p.offset] for p in placed] == [b"%d" % n for n in range(300)]


async def test_counts(broker: Broker) -> None:
    """What a publisher sends again is recognised, wholly or partly, alone or among others."""
    alice = await broker.publishers.find("alice", lasting=True)

    def publish(count: int, *bodies: bytes) -> Any:
        return broker.topics.publish("news", bodies, publisher=alice, count=count)

    answers = await asyncio.gather(
        publish(1, b"1", b"2"),
        publish(1, b"1", b"2"),
        publish(2, b"2", b"3"),
        publish(4, b"4"),
        publish(3, b"3", b"4", b"5"),
    )
    assert [(a.offset, a.skipped) for a in answers] == [(0, 0), (-1, 2), (2, 1), (3, 0), (4, 2)]
    assert await everything(broker, "news") == [b"1", b"2", b"3", b"4", b"5"]
    assert await broker.publishers.last_count("alice", "topic", "news") == 5
    with pytest.raises(InvalidInput):
        await publish(0, b"x")


async def test_keys_decide(broker: Broker) -> None:
    """An entry with a key goes to the key's partition; the answer says where each went."""
    await broker.topics.create("news", 4)
    placed = await broker.topics.publish("news", [key.encode() for key in KEYS], keys=KEYS)
    assert placed.scattered is not None
    for key, (partition, offset) in zip(KEYS, placed.scattered, strict=True):
        assert partition == partition_of(key, 4)
        assert (await everything(broker, "news", partition))[offset] == key.encode()


async def test_counts_over_partitions(broker: Broker) -> None:
    """Counts go over the whole topic: a partial resend with keys stores each entry once."""
    await broker.topics.create("news", 3)
    alice = await broker.publishers.find("alice", lasting=True)
    bodies = [key.encode() for key in KEYS]
    for first, last in [(0, 7), (3, 12), (0, 20), (5, 15)]:
        placed = await broker.topics.publish(
            "news", bodies[first:last], keys=KEYS[first:last], publisher=alice, count=first + 1
        )
        assert placed.scattered is not None or placed.partition
    found = [body for n in (1, 2, 3) for body in await everything(broker, "news", n)]
    assert sorted(found) == sorted(bodies)


async def test_a_publisher_keeps_to_a_partition(broker: Broker) -> None:
    """Without keys a publisher's entries stay together, and others go round."""
    await broker.topics.create("news", 3)
    alice = await broker.publishers.find("alice", lasting=True)
    mine = [await broker.topics.publish("news", [b"x"], publisher=alice, count=n) for n in (1, 2, 3)]
    assert {p.partition for p in mine} == {partition_of("alice", 3)}
    theirs = [await broker.topics.publish("news", [b"x"]) for _ in range(3)]
    assert {p.partition for p in theirs} == {1, 2, 3}


async def test_a_chosen_partition(broker: Broker) -> None:
    """A caller may choose the partition; one that does not exist is an error for that call only."""
    await broker.topics.create("news", 3)
    answers = await asyncio.gather(
        broker.topics.publish("news", [b"a"], partition=2),
        broker.topics.publish("news", [b"b"], partition=9),
        broker.topics.publish("news", [b"c", b"d"], keys=["k", "l"], partition=2),
        broker.topics.publish("news", [b"e"], partition=2**40),
        return_exceptions=True,
    )
    assert [type(each) for each in (answers[1], answers[3])] in (
        [CallFailed, CallFailed],
        [InvalidInput, InvalidInput],
        [CallFailed, InvalidInput],
    )
    assert await everything(broker, "news", 2) == [b"a", b"c", b"d"]


async def test_stale_layout(broker: Broker, connection: Connection) -> None:
    """When a topic has got more partitions behind the node's back, keys go where they belong now."""
    await broker.topics.publish("news", [b"before"])
    await connection.execute("update nuncius.topics set partition_count = 4")
    await connection.execute(
        "insert into nuncius.partitions (topic_id, partition)"
        " select topic_id, n from nuncius.topics, generate_series(2, 4) n"
    )
    placed = await asyncio.gather(
        *(broker.topics.publish("news", [key.encode()], keys=[key]) for key in KEYS)
    )
    assert all(p.offset >= 0 or p.scattered for p in placed)
    for key in KEYS:
        assert key.encode() in await everything(broker, "news", partition_of(key, 4))


async def test_growing(broker: Broker, connection: Connection) -> None:
    """A topic gets more partitions, never fewer; what is published next goes where it belongs now."""
    await broker.topics.publish("news", [b"before"])
    await broker.topics.grow("news", 4)
    await broker.topics.grow("news", 4)
    (info,) = await broker.topics.find(["news"])
    assert [(p.first_offset, p.next_offset) for p in info.partitions] == [(0, 1), (0, 0), (0, 0), (0, 0)]
    await asyncio.gather(*(broker.topics.publish("news", [key.encode()], keys=[key]) for key in KEYS))
    for key in KEYS:
        assert key.encode() in await everything(broker, "news", partition_of(key, 4))
    with pytest.raises(CallFailed, match="topic 'news' has 4 partitions, and cannot have fewer"):
        await broker.topics.grow("news", 3)
    with pytest.raises(InvalidInput, match="1 to 1000 partitions"):
        await broker.topics.grow("news", 1001)
    with pytest.raises(NoSuchTopic):
        await broker.topics.grow("other", 2)
    assert await connection.fetchval("select count(*) from nuncius.partitions") == 4


async def test_a_topic_deleted_behind_the_nodes_back(broker: Broker, connection: Connection) -> None:
    """Publishing to a topic that was deleted meanwhile makes it anew."""
    await broker.topics.publish("news", [b"before"])
    topic = await broker.topics.names.find("news")
    await connection.execute("select nuncius.delete_topic('news')")
    broker.topics.names.learn("news", topic)
    assert (await broker.topics.publish("news", [b"after"])).offset == 0
    assert await everything(broker, "news") == [b"after"]


async def test_busy_topic(broker: Broker, other: Connection, observer: Connection) -> None:
    """While an application's transaction holds a topic, others go on; the held one resumes in order and
    nothing of a publisher is lost."""
    alice = await broker.publishers.find("alice", lasting=True)
    await broker.topics.publish("held", [b"0"], publisher=alice, count=1)
    await other.execute("begin")
    await other.execute("select nuncius.publish('held', 'application')")
    held = []
    for n in range(1, 6):
        held.append(start(broker.topics.publish("held", [b"%d" % n], publisher=alice, count=n + 1)))
        placed = await broker.topics.publish("free", [b"%d" % n], publisher=alice, count=n)
        assert placed.skipped == 0
    await until_somebody_waits(observer, "nuncius publish")
    assert not any(call.done() for call in held)
    await other.execute("commit")
    assert [(p.offset, p.skipped) for p in await asyncio.gather(*held)] == [(n, 0) for n in range(2, 7)]
    assert await everything(broker, "held") == [b"0", b"application", b"1", b"2", b"3", b"4", b"5"]


async def test_busy_publisher(broker: Broker, other: Connection, observer: Connection) -> None:
    """While an application's transaction counts for a publisher, that one waits and others do not."""
    alice = await broker.publishers.find("alice", lasting=True)
    bob = await broker.publishers.find("bob", lasting=True)
    await broker.topics.publish("news", [b"0"])
    await other.execute("begin")
    await other.execute("select nuncius.publish('theirs', 'x', publisher => 'alice', count => 1)")
    held = start(broker.topics.publish("news", [b"a"], publisher=alice, count=1))
    await until_somebody_waits(observer, "nuncius publish")
    async with asyncio.timeout(60):
        await broker.topics.publish("other", [b"b"], publisher=bob, count=1)
    assert not held.done()
    await other.execute("rollback")
    assert (await held).skipped == 0


@pytest.mark.parametrize("counted", [True, False])
async def test_killed_while_publishing(
    broker: Broker, other: Connection, observer: Connection, counted: bool
) -> None:
    """A counted publish whose connection is killed in flight is stored once; another one is not repeated."""
    alice = await broker.publishers.find("alice", lasting=True)
    await broker.topics.publish("news", [b"0"])
    await other.execute("begin")
    await other.execute("select nuncius.publish('news', 'held')")
    options: Any = {"publisher": alice, "count": 1} if counted else {}
    call = start(broker.topics.publish("news", [b"x"], **options))
    await until_somebody_waits(observer, "nuncius publish")

    async def is_killed() -> bool:
        # On the way to its detour the call does not wait for a moment.
        return bool(
            await observer.fetch(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'nuncius publish' and wait_event_type = 'Lock'"
            )
        )

    await until(is_killed)
    if counted:
        await until_somebody_waits(observer, "nuncius publish")
    await other.execute("commit")
    if counted:
        assert (await call).offset == 2
    else:
        with pytest.raises(OutcomeUnknown):
            await call
    assert await everything(broker, "news") == [b"0", b"held"] + [b"x"] * counted


async def test_fetch_waits(broker: Broker) -> None:
    """A fetch may wait for the first entry, and only for so long."""
    await broker.topics.create("news")
    topic = await broker.topics.existing("news")
    assert await broker.topics.fetch(topic, 1, 0, 10, wait=0.02) is None
    fetching = start(broker.topics.fetch(topic, 1, 0, 10, wait=60))
    await until(lambda: readers(broker) == 1)
    await broker.topics.publish("news", [b"a"])
    entries = await fetching
    assert entries.bodies == [b"a"]


async def test_fetch_is_bounded_by_bytes(broker: Broker) -> None:
    """One fetch answers with about a megabyte, and with one entry however large it is."""
    large = b"x" * (3 << 20)
    await broker.topics.publish("news", [b"", large, b"a" * 600_000, b"b" * 600_000, b"c"])
    topic = await broker.topics.existing("news")
    sizes = []
    position = 0
    while entries := await broker.topics.fetch(topic, 1, position, 100):
        sizes.append([len(body) for body in entries.bodies])
        position = entries.next_offset
    assert sizes == [[0, 3 << 20], [600_000], [600_000, 1]]


async def test_reading_a_deleted_topic(broker: Broker) -> None:
    """Who reads a topic that is deleted is told so, also while it waits."""
    await broker.topics.create("news")
    topic = await broker.topics.existing("news")
    fetching = start(broker.topics.fetch(topic, 1, 0, 10, wait=60))
    await until(lambda: readers(broker) == 1)
    await broker.topics.delete("news")
    with pytest.raises(NoSuchTopic):
        await fetching
    with pytest.raises(NoSuchTopic):
        await broker.topics.existing("news")


async def test_looking_after(broker: Broker) -> None:
    """Topics are created, listed with their ends, purged, kept for a while, and deleted."""
    await broker.topics.create("news", 2)
    with pytest.raises(AlreadyExists):
        await broker.topics.create("news")
    await broker.topics.publish("news", [b"a", b"b"], partition=2)
    await broker.topics.set_retention("news", Retention("time", seconds=60))
    (info,) = await broker.topics.find(["news", "nothing"])
    assert info.retention == Retention("time", 60, None)
    assert [(p.first_offset, p.next_offset) for p in info.partitions] == [(0, 0), (0, 2)]
    assert await broker.topics.purge("news") == 2
    for retention in (Retention("time"), Retention("size", 5), Retention("sometimes")):
        with pytest.raises(InvalidInput):
            await broker.topics.set_retention("news", retention)
    await broker.topics.delete("news")
    assert await broker.topics.find() == []
    for call in (
        broker.topics.delete("news"),
        broker.topics.purge("news"),
        broker.topics.set_retention("news", Retention()),
    ):
        with pytest.raises(NoSuchTopic):
            await call
