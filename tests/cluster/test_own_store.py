"""Brokers with stores of their own: their partitions live there, and everybody can use them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from cluster.inside import Node, bodies, everything, node
from nuncius.broker import Broker
from nuncius.broker.errors import CallFailed, NoSuchTopic, OutcomeUnknown, StoreUnavailable
from nuncius.broker.model import Retention
from nuncius.cluster import own_store
from nuncius.cluster.link.codec import Moved, Send
from nuncius.cluster.link.link import BrokerLink, Forward
from nuncius.cluster.own_store import OtherCluster, StoreInUse
from nuncius.store.calls.publishing import partition_of
from racing import until


@pytest.fixture
async def writer(dsn: str) -> AsyncIterator[Node]:
    async with node(dsn, "writer", port=7001) as made:
        yield made


@pytest.fixture
async def owner(dsn: str, away: str, writer: Node) -> AsyncIterator[Node]:
    """A broker with its own store; nobody else is there to be given partitions yet."""
    async with node(dsn, "broker", port=1000, own_store=away) as made:
        await known(writer, 1)
        yield made


async def known(writer: Node, brokers: int) -> None:
    await until(lambda: len(writer.participant.router.forwarding.members) >= brokers)


def alive(writer: Node, broker: int) -> bool:
    """As far as the writer has heard."""
    member = writer.participant.router.forwarding.members.get(broker)
    return member is not None and member.is_alive


async def value(dsn: str, sql: str, *arguments: Any) -> Any:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(sql, *arguments)
    finally:
        await connection.close()


async def mixed(writer: Node, dsn: str, name: str = "news", each: int = 2) -> None:
    """A topic with some partitions in the owner's store, and as many in the common one."""
    await writer.broker.topics.create(name, 2 * each)
    await value(dsn, "update nuncius.partitions set store_id = 2 where partition <= $1", each)
    await value(
        dsn,
        "insert into nuncius.assignments select partition_id, case when partition <= $1 then 1 else 2 end"
        " from nuncius.partitions",
        each,
    )


async def test_entries_live_there(dsn: str, away: str, writer: Node, owner: Node) -> None:
    """Entries are in the broker's store under the number of the common catalogue, and nowhere else."""
    placed = await writer.broker.topics.publish("news", [b"a", b"b"], keys=["k", None])
    assert (placed.partition, placed.offset) == (1, 0)
    partition_id = (await writer.broker.topics.existing("news")).partition_ids[0]
    assert await value(dsn, "select count(*) from nuncius.entries") == 0
    assert (
        await value(away, "select count(*) from nuncius.entries where partition_id = $1", partition_id) == 2
    )
    assert await value(dsn, "select dsn from nuncius.stores where store_id = 2") == away
    for each in (writer, owner):
        assert await bodies(each.broker, "news") == {1: [b"a", b"b"]}
    assert (await owner.broker.topics.publish("news", [b"c"])).offset == 2


async def test_a_reader_that_has_not_heard_of_it(dsn: str, writer: Node, owner: Node) -> None:  # noqa: ARG001
    """Whoever looks for entries in the common store is told that they are elsewhere, and finds them there:
    there is no false "nothing"."""
    async with node(dsn, "reader", port=6001) as reader:
        reader.participant.watch.task.cancel()  # type: ignore[union-attr]  # it hears nothing by itself
        await writer.broker.topics.publish("news", [b"a"])
        await writer.broker.actors.register_consumer("news")
        consumer = await reader.broker.actors.consumers.find("1")
        assert await reader.broker.consuming.consume(consumer) == b"a"
        assert await reader.broker.consuming.consume(consumer) is None
        await value(dsn, "delete from nuncius.ends")  # what the owner says of it comes late
        assert await reader.broker.actors.size(consumer) == 0
    async with Broker(dsn) as alone:  # not in the cluster, so it cannot know
        assert await bodies(alone, "news") == {1: []}


async def test_an_owner_that_has_not_heard_of_it(
    dsn: str, writer: Node, owner: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """A partition that was given to it a moment ago is empty, not gone; one whose topic was deleted is gone.
    The connection lives on either way."""
    await mixed(writer, dsn, each=1)
    await writer.participant.router.learn_elsewhere()
    topic = await writer.broker.topics.existing("news")
    assert await bodies(writer.broker, "news") == {1: [], 2: []}
    link = writer.participant.router.forwarding.links[1]
    await value(dsn, "delete from nuncius.partitions")
    await owner.participant.own.copy()  # type: ignore[union-attr]
    with pytest.raises(NoSuchTopic):
        await writer.broker.topics.fetch(topic, 1, 0, 1)
    assert not link.is_down
    assert "makes no sense" not in caplog.text


async def test_subscribers(writer: Node, owner: Node) -> None:
    """A subscription reads on, here and there, as entries come; its positions are in the common store."""
    await writer.broker.topics.publish("news", [b"a"])
    subscription = await writer.broker.subscriptions.subscribe("news", "reader", start="earliest")
    reader = await writer.broker.subscriptions.cursor(subscription)
    assert (await reader.next(10)).entries.bodies == [b"a"]
    waiting = asyncio.ensure_future(reader.next(10))
    await asyncio.sleep(0)
    await owner.broker.topics.publish("news", [b"b"])
    async with asyncio.timeout(60):
        assert (await waiting).entries.bodies == [b"b"]

    async def lag() -> int:
        return (await writer.broker.subscriptions.list("news"))[0].lag

    await owner.participant.own.tell()  # type: ignore[union-attr]
    assert await lag() == 2
    confirmed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    writer.broker.positions.confirm_soon(subscription, 1, 2, confirmed.set_result)
    assert await confirmed is None
    assert await lag() == 0


async def test_retention(dsn: str, away: str, writer: Node, owner: Node) -> None:
    """Entries go when the topic's retention says so, and no earlier than the subscribers that hold them."""
    own = owner.participant.own
    assert own is not None
    topics = writer.broker.topics
    await topics.publish("news", [b"x" * 100] * 10)
    await topics.set_retention("news", Retention("size", bytes=300))
    subscription = await writer.broker.subscriptions.subscribe(
        "news", "slow", start="earliest", holds_retention=True
    )
    await own.look_after()
    assert await value(away, "select count(*) from nuncius.entries") == 10
    confirmed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    writer.broker.positions.confirm_soon(subscription, 1, 5, confirmed.set_result)
    await confirmed
    await own.look_after()
    assert await value(away, "select count(*) from nuncius.entries") == 5
    assert await value(dsn, "select first_offset from nuncius.partitions") == 5
    await writer.broker.subscriptions.unsubscribe("news", "slow")
    await own.look_after()
    assert await value(dsn, "select first_offset from nuncius.partitions") == 7
    assert (await topics.find(["news"]))[0].partitions[0].next_offset == 10
    await topics.set_retention("news", Retention("subscribers"))
    await value(dsn, "select nuncius.collect()")
    await own.look_after()
    assert await bodies(writer.broker, "news") == {1: []}


async def test_purged_and_deleted(away: str, writer: Node, owner: Node) -> None:
    """What is purged is gone, and so is a deleted topic; one of the same name begins anew."""
    own = owner.participant.own
    assert own is not None
    topics = writer.broker.topics
    await topics.publish("news", [b"a", b"b"])
    await own.tell()
    assert await topics.purge("news") == 2
    await own.look_after()
    assert await bodies(writer.broker, "news") == {1: []}
    assert (await topics.publish("news", [b"c"])).offset == 2
    await topics.delete("news")
    assert (await topics.publish("news", [b"d"])).offset == 0
    await own.look_after()
    assert await bodies(writer.broker, "news") == {1: [b"d"]}
    assert await value(away, "select count(*) from nuncius.entries") == 1


async def test_away_and_back(dsn: str, away: str, writer: Node) -> None:
    """While the broker is away produce goes to others, what must go there is refused, and consumers skip it;
    when it is back everything is there."""
    async with node(dsn, "broker", port=1000, own_store=away):
        await known(writer, 1)
        async with node(dsn, "broker", port=1100):
            await known(writer, 2)
            await mixed(writer, dsn)
            topics = writer.broker.topics
            for n in range(40):
                await topics.publish("news", [b"%02d" % n])
            found = await bodies(writer.broker, "news")
            assert [len(each) for each in found.values()] == [10, 10, 10, 10]

    async with node(dsn, "broker", port=1100):
        await until(lambda: not alive(writer, 1) and alive(writer, 2))
        await asyncio.gather(*(topics.publish("news", [b"%02d" % n]) for n in range(40, 60)))
        with pytest.raises(StoreUnavailable, match="partition 1 of topic 'news' is in the store of a broker"):
            await topics.publish("news", [b"x"], partition=1)
        there = next(f"key {n}" for n in range(100) if partition_of(f"key {n}", 4) == 2)
        with pytest.raises(StoreUnavailable, match="partition 2 of topic"):
            await topics.publish("news", [b"x"], keys=[there])
        key = await writer.broker.publishers.find(identity_for(4, {1, 2}), lasting=False)
        assert (await topics.publish("news", [b"id"], publisher=key, count=1)).partition in (3, 4)
        found = await bodies(writer.broker, "news")
        assert [len(found[1]), len(found[2])] == [0, 0]
        assert len(everything(found)) == 41
        async with node(dsn, "broker", port=1000, own_store=away) as back:
            await until(lambda: alive(writer, 1))
            found = await bodies(writer.broker, "news")
            assert everything(found) == [*(b"%02d" % n for n in range(60)), b"id"]
            assert await bodies(back.broker, "news") == found
            assert (await topics.publish("news", [b"y"], partition=1)).offset == 10


async def test_lost_while_under_way(
    dsn: str, writer: Node, owner: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that is lost is said to be unknown; sent again under its identity, it is stored once, and in
    the same store, whatever has become of the topic."""
    topics = writer.broker.topics
    async with node(dsn, "broker", port=1100):
        await known(writer, 2)
        await mixed(writer, dsn)
        key = await writer.broker.publishers.find(identity_for(4, {1, 2}), lasting=False)
        await topics.publish("news", [b"warm"])
        swallowed = asyncio.Event()
        for peer in owner.participant.server.peers:
            monkeypatch.setattr(peer.transport, "write", lambda _: swallowed.set())
        call = asyncio.ensure_future(topics.publish("news", [b"once"], publisher=key, count=1))
        await swallowed.wait()
        for peer in list(owner.participant.server.peers):
            peer.transport.abort()
        with pytest.raises(OutcomeUnknown, match="was lost"):
            await call
        await topics.grow("news", 9)
        await until(lambda: not writer.participant.router.forwarding.links[1].is_down)
        again = await topics.publish("news", [b"once"], publisher=key, count=1)
        assert again.skipped == 1
        assert everything(await bodies(writer.broker, "news")).count(b"once") == 1


def identity_for(layout: int, partitions: set[int]) -> str:
    return next(f"id {n}" for n in range(100) if partition_of(f"id {n}", layout) in partitions)


async def test_several_stores_in_one_call(dsn: str, writer: Node, owner: Node) -> None:
    """Entries of one call go to their partitions, in whichever stores, and are known by their identity."""
    async with node(dsn, "broker", port=1100) as other:
        await known(writer, 2)
        await mixed(writer, dsn)
        keys: list[str | None] = [f"key {n}" for n in range(20)]
        contents = [str(key).encode() for key in keys]
        for each in (writer, owner, other):
            placed = await each.broker.topics.publish("news", contents, keys=keys)
            assert placed.scattered is not None
            assert [p for p, _ in placed.scattered] == [partition_of(str(key), 4) for key in keys]
        alice = await writer.broker.publishers.find("alice", lasting=True)
        skipped = []
        for _ in range(2):
            again = await writer.broker.topics.publish(
                "news", contents, keys=keys, headers=['{"n": "1"}'] * 20, publisher=alice, count=1
            )
            skipped.append(again.skipped)
        assert skipped == [0, 20]
        assert len(everything(await bodies(other.broker, "news"))) == 80


async def test_not_there(dsn: str, writer: Node, owner: Node) -> None:
    """A partition that does not exist is said; a topic that was deleted elsewhere begins anew."""
    async with node(dsn, "broker", port=1100):
        await known(writer, 2)
        await mixed(writer, dsn)
        topics = writer.broker.topics
        with pytest.raises(CallFailed, match="topic 'news' has no partition 9"):
            await topics.publish("news", [b"x"], partition=9)
        await owner.broker.topics.delete("news")
        placed = await topics.publish("news", [b"x"])
        assert (placed.partition, placed.offset) == (1, 0)


async def test_gone_before_it_is_reached(dsn: str, writer: Node, owner: Node) -> None:
    """A broker that dies before anything was sent to it: what may go elsewhere does, the rest is refused."""
    async with node(dsn, "broker", port=1100):
        await known(writer, 2)
        await mixed(writer, dsn)
        await owner.crash()
        topics = writer.broker.topics
        for _ in range(4):
            assert (await topics.publish("news", [b"x"])).partition in (3, 4)
        with pytest.raises(StoreUnavailable, match="partition 1 of topic"):
            await topics.publish("news", [b"x"], partition=1)
        keys: list[str | None] = [f"key {n}" for n in range(20)]
        with pytest.raises(OutcomeUnknown, match="some of the entries may be stored, others are not"):
            await topics.publish("news", [b"y"] * 20, keys=keys)


async def test_one_of_several_that_count_fails(
    writer: Node, owner: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one message of a publisher could not be sent, its next is stored: the first is not tried again,
    for it would be taken for a repeat, and its publisher is told."""
    topics, forwarding = writer.broker.topics, writer.participant.router.forwarding
    alice = await writer.broker.publishers.find("alice", lasting=True)
    await topics.publish("news", [b"0"], publisher=alice, count=1)
    find, unlucky = forwarding.of_store, iter([True])
    monkeypatch.setattr(forwarding, "of_store", lambda store: None if next(unlucky, False) else find(store))
    first, second = await asyncio.gather(
        topics.publish("news", [b"1"], publisher=alice, count=2),
        topics.publish("news", [b"2"], publisher=alice, count=3),
        return_exceptions=True,
    )
    assert isinstance(first, StoreUnavailable)
    assert not isinstance(second, BaseException)
    assert everything(await bodies(owner.broker, "news")) == [b"0", b"2"]


async def test_no_other_partition(dsn: str, away: str, writer: Node) -> None:
    """A topic whose partitions are all in the store of a broker that is away gets one more at another broker,
    and no more than one; what is published in order stays so. What must go there is refused nevertheless."""
    topics = writer.broker.topics
    async with node(dsn, "broker", port=1000, own_store=away) as owner:
        await known(writer, 1)
        await topics.publish("news", [b"0"])
        async with node(dsn, "broker", port=1100):
            await known(writer, 2)
            await owner.crash()
            alice = await writer.broker.publishers.find("alice", lasting=True)
            counted = [topics.publish("news", [b"a%02d" % n], publisher=alice, count=n) for n in range(1, 21)]
            free = [topics.publish("news", [b"f"]) for _ in range(20)]
            placed = await asyncio.gather(*counted, *free)
            assert {(each.partition, each.skipped) for each in placed} == {(2, 0)}
            assert len((await topics.existing("news")).partition_ids) == 2
            with pytest.raises(StoreUnavailable, match="partition 1 of topic"):
                await topics.publish("news", [b"x"], partition=1)
            found = (await bodies(writer.broker, "news"))[2]
            assert [body for body in found if body != b"f"] == [b"a%02d" % n for n in range(1, 21)]


async def test_a_new_topic_is_not_given_to_who_is_lost(dsn: str, away: str, writer: Node) -> None:
    """Who has found a broker lost gives it no partition, though the others still believe in it."""
    async with node(dsn, "broker", port=1000, own_store=away) as owner:
        await known(writer, 1)
        await writer.broker.topics.publish("news", [b"0"])
        async with node(dsn, "broker", port=1100):
            await known(writer, 2)
            await owner.crash()
            await until(lambda: writer.participant.router.forwarding.lost == [1])
            await writer.broker.topics.create("more", 20)
            await writer.broker.topics.publish("more", [b"a"])
            given = await value(dsn, "select count(*) from nuncius.assignments where broker_id = 1")
            assert given == 1


async def test_nobody_else(writer: Node, owner: Node) -> None:
    """When every partition is in the store of a broker that is away, there is nowhere to go."""
    await writer.broker.topics.publish("news", [b"a"])
    await owner.crash()
    await until(lambda: writer.participant.router.forwarding.links[1].is_down)
    with pytest.raises(StoreUnavailable, match="no broker answers; nothing was stored"):
        await writer.broker.topics.publish("news", [b"x"])


async def test_sent_to_the_wrong_broker(dsn: str, writer: Node, owner: Node) -> None:
    """A broker that is sent what belongs elsewhere says so, and stores nothing."""
    del owner
    async with node(dsn, "broker", port=1100) as other:
        await known(writer, 2)
        await mixed(writer, dsn)
        topic = await writer.broker.topics.existing("news")
        member = next(m for m in await writer.participant.members.brokers() if m.broker_id == 2)
        assert member.link_port is not None
        link = BrokerLink(member.host, member.link_port, "test")
        answers = []
        for partition in (1, 3):
            answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            send = Send(0, 1, topic.topic_id, "news", partition, [b"x"], None, None, 0, "", 0)
            link.forward(Forward(send, answered.set_result, answered.set_result))
            answers.append(await answered)
        link.leave()
        assert isinstance(answers[0], Moved)
        assert answers[1].partition == 3
        assert everything(await bodies(other.broker, "news")) == [b"x"]


async def test_grown_while_cached(dsn: str, writer: Node, owner: Node) -> None:
    """Keys follow the number of partitions, also when another node has added some a moment ago."""
    del owner
    async with node(dsn, "broker", port=1100):
        await known(writer, 2)
        await mixed(writer, dsn)
        topics = writer.broker.topics
        await topics.publish("news", [b"x"])
        await value(dsn, "select nuncius.grow_topic('news', 7)")
        await until(lambda: topics.names.known("news") is None)
        key = next(f"key {n}" for n in range(100) if partition_of(f"key {n}", 7) == 6)
        assert (await topics.publish("news", [b"x"], keys=[key])).partition == 6


async def test_doors_that_cannot(dsn: str, writer: Node, owner: Node) -> None:
    """What only the common store can do is refused for topics elsewhere, not done wrongly."""
    await writer.broker.topics.publish("news", [b"a"])
    with pytest.raises(asyncpg.FeatureNotSupportedError, match="is in the store of a broker"):
        await value(dsn, "select nuncius.publish('news', 'x')")
    turn: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    writer.broker.pubsub.put_soon("news", "alice", 1, b"x", turn.set_result)
    with pytest.raises(CallFailed, match="out of reach"):
        raise await turn
    transaction = owner.broker.transaction()
    transaction.publish("news", b"x")
    committed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    transaction.commit_soon(committed.set_result)
    with pytest.raises(CallFailed, match="in the store of a broker"):
        raise await committed
    assert await value(dsn, "select count(*) from nuncius.entries") == 0


async def test_one_broker_a_store(dsn: str, away: str, owner: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store has one broker, and belongs to one cluster."""
    monkeypatch.setattr(own_store, "LOCK_SECONDS", 0.0)
    with pytest.raises(StoreInUse, match="another broker runs on this store"):
        async with node(dsn, "broker", port=1100, own_store=away):
            pass
    await owner.participant.own.holding.close()  # type: ignore[union-attr]
    await value(away, "update nuncius.belongs_to set cluster_id = gen_random_uuid()")
    with pytest.raises(OtherCluster, match="of another cluster"):
        async with node(dsn, "broker", port=1100, own_store=away):
            pass
