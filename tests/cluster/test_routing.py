"""Entries find the broker that has their partition, and another when that one is lost."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from cluster.inside import Node, bodies, everything, node
from nuncius.broker.caller import Caller
from nuncius.broker.errors import StoreUnavailable
from nuncius.broker.model import Placed
from nuncius.cluster import forwarding
from nuncius.store.driver import Connection
from racing import until


@pytest.fixture
async def writer(dsn: str) -> AsyncIterator[Node]:
    async with node(dsn, "writer", port=7001) as made:
        yield made


@pytest.fixture
async def first(dsn: str, writer: Node) -> AsyncIterator[Node]:
    """The first broker; the writer knows it."""
    async with node(dsn, "broker", port=1000) as made:
        await known(writer, 1)
        yield made


@pytest.fixture
async def second(dsn: str, writer: Node, first: Node) -> AsyncIterator[Node]:  # noqa: ARG001
    async with node(dsn, "broker", port=1100) as made:
        await known(writer, 2)
        yield made


async def known(writer: Node, brokers: int) -> None:
    """The writer has heard of so many."""
    await until(lambda: len(writer.participant.router.forwarding.members) >= brokers)


async def assignments(dsn: str) -> dict[int, int]:
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch("select * from nuncius.assignments")
    await connection.close()
    return {row[0]: row[1] for row in rows}


async def test_nobody_to_store(dsn: str, writer: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a broker a writer waits for one, not for long, and says so."""
    waiting = [asyncio.ensure_future(writer.broker.topics.publish("news", [b"%d" % n])) for n in range(3)]
    await until(lambda: len(writer.participant.router.forwarding.waiting) == 3)
    async with node(dsn, "broker", port=1000):
        assert [placed.offset for placed in await asyncio.gather(*waiting)] == [0, 1, 2]
    monkeypatch.setattr(forwarding, "PATIENCE", 0.1)
    with pytest.raises(StoreUnavailable, match="no broker answers"):
        await writer.broker.topics.publish("news", [b"a"])


async def test_forwarded(dsn: str, writer: Node, first: Node) -> None:
    """A writer stores nothing itself: the broker that was given the partition does."""
    placed = await writer.broker.topics.publish("news", [b"a", b"b"], headers=[None, '{"h": "1"}'])
    assert (placed.partition, placed.offset, placed.skipped) == (1, 0, 0)
    assert list((await assignments(dsn)).values()) == [1]
    assert await bodies(first.broker, "news") == {1: [b"a", b"b"]}
    assert not writer.participant.router.forwarding.links[1].is_waiting


async def test_round_robin(dsn: str, writer: Node, second: Node) -> None:
    """One after the other, each goes to the next partition, and those are given out to both brokers."""
    await writer.broker.topics.create("news", 16)
    placed = [await writer.broker.topics.publish("news", [b"%02d" % n]) for n in range(32)]
    assert [each.offset for each in placed] == [0] * 16 + [1] * 16
    found = await bodies(second.broker, "news")
    assert all(found[p.partition][p.offset] == b"%02d" % n for n, p in enumerate(placed))
    assert set((await assignments(dsn)).values()) == {1, 2}


async def test_many_at_once(writer: Node, second: Node) -> None:
    """What is published together is stored together, each where the answer says."""
    await writer.broker.topics.create("news", 3)
    calls = [writer.broker.topics.publish("news", [b"%03d" % n]) for n in range(320)]
    placed = await asyncio.gather(*calls)
    found = await bodies(second.broker, "news")
    assert everything(found) == [b"%03d" % n for n in range(320)]
    assert all(found[p.partition][p.offset] == b"%03d" % n for n, p in enumerate(placed))


async def test_keys_and_names(writer: Node, second: Node) -> None:
    """A key goes where it always goes, a named partition is taken at its word, and a wrong one is said."""
    await writer.broker.topics.create("news", 3)
    keys = [f"key {n}" for n in range(30)]
    for _ in range(2):
        await writer.broker.topics.publish("news", [key.encode() for key in keys], keys=keys)
    found = await bodies(second.broker, "news")
    assert sum(len(set(each)) for each in found.values()) == 30
    assert sum(map(len, found.values())) == 60
    placed = await writer.broker.topics.publish("news", [b"x"], partition=3)
    assert placed.partition == 3
    with pytest.raises(Exception, match="has no partition 4"):
        await writer.broker.topics.publish("news", [b"x"], partition=4)


async def test_identities(writer: Node, second: Node) -> None:
    """What is sent again is stored once, whichever broker stores it."""
    alice = await writer.broker.publishers.find("alice", lasting=True)
    answers = await asyncio.gather(
        *(writer.broker.topics.publish("news", [b"%d" % n], publisher=alice, count=n) for n in range(1, 50))
    )
    assert [answer.offset for answer in answers] == list(range(49))
    again = await writer.broker.topics.publish("news", [b"49", b"50"], publisher=alice, count=49)
    assert again == Placed(1, 49, 1)
    assert len(everything(await bodies(second.broker, "news"))) == 50


async def test_a_broker_is_lost(dsn: str, writer: Node, first: Node, second: Node) -> None:
    """What was under way to a broker that dies is stored once, by the other; and the assignments follow."""
    writer.participant.placement.silence = writer.participant.members.silence = 0.3
    await writer.broker.topics.create("news", 4)
    await writer.broker.topics.publish("news", [b"000"])
    calls = []
    for n in range(1, 400):
        calls.append(asyncio.ensure_future(writer.broker.topics.publish("news", [b"%03d" % n])))
        if n % 20 == 0:
            await asyncio.sleep(0)
        if n == 200:
            await calls[50]
            await first.crash()
    await asyncio.gather(*calls)
    assert everything(await bodies(second.broker, "news")) == [b"%03d" % n for n in range(400)]

    async def moved() -> bool:
        return set((await assignments(dsn)).values()) == {2}

    await until(moved)


async def test_a_broker_comes_and_goes(dsn: str, writer: Node, first: Node) -> None:
    """A broker that starts is given new partitions; one that stops hands over what it has."""
    await writer.broker.topics.create("news", 8)
    await writer.broker.topics.publish("news", [b"a"])
    async with node(dsn, "broker", port=1100):
        await known(writer, 2)
        await writer.broker.topics.grow("news", 40)
        await until(lambda: writer.broker.topics.names.known("news") is None)
        await writer.broker.topics.publish("news", [b"b"])
        assert set((await assignments(dsn)).values()) == {1, 2}
    assert set((await assignments(dsn)).values()) == {1}
    await asyncio.gather(*(writer.broker.topics.publish("news", [b"c"]) for _ in range(80)))
    assert len(everything(await bodies(first.broker, "news"))) == 82


async def test_removed_and_added(dsn: str, writer: Node, second: Node) -> None:
    """A broker that is removed serves nothing any more; added again, it keeps its number and gets more."""
    await writer.broker.topics.create("news", 16)
    await writer.broker.topics.publish("news", [b"a"])
    members = second.participant.members
    await members.remove_broker(1)
    assert set((await assignments(dsn)).values()) == {2}
    await writer.broker.topics.publish("news", [b"b"])
    assert await members.add_broker(1000) == 1
    await writer.broker.topics.create("more", 16)
    await until(lambda: writer.participant.router.forwarding.members[1].may_be_given_more)
    await writer.broker.topics.publish("more", [b"c"])
    assert set((await assignments(dsn)).values()) == {1, 2}
    with pytest.raises(Exception, match="there is no broker 9"):
        await members.remove_broker(9)
    assert await members.add_broker(1200) == 3  # it may start later
    assert [m.is_alive for m in await members.brokers()] == [True, True, False]


async def test_a_broker_that_hangs(
    writer: Node, first: Node, second: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that takes requests and answers none is given up; another answers."""
    monkeypatch.setattr("nuncius.cluster.forwarding.HANG_SECONDS", 0.3)
    await writer.broker.topics.create("news", 8)
    await writer.broker.topics.publish("news", [b"0"])
    for peer in first.participant.server.peers:
        peer.transport.pause_reading()
    async with asyncio.timeout(60):
        await asyncio.gather(*(writer.broker.topics.publish("news", [b"1"]) for _ in range(16)))
    assert len(everything(await bodies(second.broker, "news"))) == 17


async def test_a_broker_that_nobody_hears(
    connection: Connection, writer: Node, first: Node, second: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that does not answer and is not heard either, its machine being gone, is given up sooner."""
    monkeypatch.setattr("nuncius.cluster.forwarding.HANG_SECONDS", 1e6)
    monkeypatch.setattr("nuncius.cluster.forwarding.SILENT_SECONDS", 0.1)
    await writer.broker.topics.create("news", 8)
    await writer.broker.topics.publish("news", [b"0"])
    for peer in first.participant.server.peers:
        peer.transport.pause_reading()
    assert first.participant.watch.task is not None
    first.participant.watch.task.cancel()
    await connection.execute(
        "update nuncius.nodes set last_heard = now() - interval '6 seconds' where port = 1000"
    )
    async with asyncio.timeout(60):
        await asyncio.gather(*(writer.broker.topics.publish("news", [b"1"]) for _ in range(16)))
    assert len(everything(await bodies(second.broker, "news"))) == 17


async def test_order_while_a_partition_moves(
    connection: Connection, writer: Node, first: Node, second: Node
) -> None:
    """What a connection sends to a partition is stored in order, also when the partition gets another broker
    while something is under way to the one before."""
    topics = writer.broker.topics
    await topics.create("news", 1)
    await topics.publish("news", [b"0"])
    owner, other = (first, second) if set((await assigned(connection)).values()) == {1} else (second, first)
    for peer in owner.participant.server.peers:
        peer.transport.pause_reading()
    stored, done = [], asyncio.Event()
    caller = Caller("native", "native-1")

    def publish(body: bytes) -> None:
        topics.publish_soon("news", [body], lambda result: note(body, result), caller=caller)

    def note(body: bytes, result: object) -> None:
        assert isinstance(result, Placed)
        stored.append((body, result.offset))
        if len(stored) == 2:
            done.set()

    publish(b"1")
    await until(lambda: any(link.is_waiting for link in writer.participant.router.forwarding.links.values()))
    seen = writer.broker.catalogue
    await connection.execute("update nuncius.assignments set broker_id = 3 - broker_id")
    await connection.execute("select pg_notify('nuncius', 'c')")
    await until(lambda: writer.broker.catalogue > seen)
    await topics.publish("news", [b"another connection's"])  # reaches the new broker
    assert other.participant.server.peers
    publish(b"2")
    for peer in owner.participant.server.peers:
        peer.transport.resume_reading()
    await done.wait()
    assert stored == [(b"1", 2), (b"2", 3)]


async def assigned(connection: Connection) -> dict[int, int]:
    return {row[0]: row[1] for row in await connection.fetch("select * from nuncius.assignments")}
