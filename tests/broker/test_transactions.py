"""Transactions: everything that a client sends and acknowledges in one happens together, or not at all."""

import asyncio
import logging
from typing import Any

import pytest

from broker.acknowledging import (
    ack,
    contents,
    held,
    lease,
    lease_one,
    node,
    outstanding,
    position,
    subscriber,
)
from broker.inside import bodies, everything, put, queue, start, until_heard, until_nodes, until_waiting_for
from nuncius.broker import Broker, future, transactions
from nuncius.broker.errors import CallFailed, InvalidInput, NoSuchQueue, OutcomeUnknown
from nuncius.broker.model import Feed, Letter, Transaction
from nuncius.store.driver import Connection
from racing import until, until_somebody_waits


async def commit(transaction: Transaction) -> None:
    committed, done = future.new()
    transaction.commit_soon(done)
    await committed


async def five_steps(broker: Broker, jobs: int, feed: Feed) -> Transaction:
    """A transaction with a step of every kind. Two messages of the queue are leased for it, and entries 0 and
    1 of the feed are pushed."""
    first, second = await lease(broker, jobs, limit=2)
    transaction = broker.transaction()
    transaction.publish("sent", b"published", headers='{"h": "x"}', key="k")
    transaction.put(jobs, Letter(b"put"))
    transaction.settle([first.lease_id])
    transaction.release([second.lease_id], "no")
    transaction.ack(feed, 1, 0, cumulative=False)
    transaction.nack(feed, 1, 1, cumulative=False, reason="no")
    return transaction


async def prepared(broker: Broker) -> tuple[int, Feed]:
    jobs = await queue(broker)
    await put(broker, jobs, b"a", b"b")
    inbox, feed = await subscriber(broker, durable=True, acknowledged=True)
    await broker.topics.publish("news", [b"0", b"1"])
    await inbox.until(2)
    return jobs, feed


async def nothing_happened(broker: Broker, jobs: int, feed: Feed, connection: Connection) -> None:
    assert await broker.topics.find(["sent"]) == [] or await everything(broker, "sent") == []
    assert await broker.queues.browse(jobs) == []
    assert [attempts for _, attempts in await held(connection)] == [1, 1]
    assert await broker.failures() == []
    assert await position(connection) == 0
    assert outstanding(feed) == 2


async def test_all(broker: Broker, connection: Connection) -> None:
    """Sends, settles, releases, acknowledgements and failures of a transaction all take effect."""
    jobs, feed = await prepared(broker)
    await commit(await five_steps(broker, jobs, feed))
    (topic,) = await broker.topics.find(["sent"])
    assert topic.partitions[0].next_offset == 1
    found = await broker.topics.fetch(await broker.topics.existing("sent"), 1, 0, 10)
    assert found is not None
    assert (found.bodies, found.keys, found.headers) == ([b"published"], ["k"], ['{"h": "x"}'])
    assert bodies(await broker.queues.browse(jobs)) == [b"put"]
    assert await held(connection) == [(0, 1)]
    failed = {(failure.destination, failure.reason) for failure in await broker.failures()}
    assert failed == {("/queue/jobs", "no"), ("/topic/news", "no")}
    assert await position(connection) == 2
    assert outstanding(feed) == 0


async def test_nothing_happens_before(broker: Broker, connection: Connection) -> None:
    """Until it is committed nothing of a transaction happens; dropping it is all an abort takes."""
    jobs, feed = await prepared(broker)
    transaction = await five_steps(broker, jobs, feed)
    await nothing_happened(broker, jobs, feed, connection)
    del transaction
    await ack(feed, 1, cumulative=True)


async def test_an_empty_one(broker: Broker) -> None:
    """A transaction without steps can be committed."""
    await commit(broker.transaction())


@pytest.mark.parametrize("fault", ["queue", "headers", "entry", "lease", "name"])
async def test_nothing(broker: Broker, connection: Connection, fault: str) -> None:
    """If one step cannot be carried out none is, and what was acknowledged is outstanding again: no such
    queue, bad headers, an entry that is not outstanding, a message that is not held, a bad name."""
    jobs, feed = await prepared(broker)
    transaction = await five_steps(broker, jobs, feed)
    if fault == "queue":
        transaction.put(999, Letter(b"x"))
    elif fault == "headers":
        transaction.put(jobs, Letter(b"x", headers="no"))
    elif fault == "entry":
        transaction.ack(feed, 1, 7, cumulative=True)
    elif fault == "lease":
        transaction.settle([999])
    else:
        transaction.publish("no\0name", b"x")
    with pytest.raises(NoSuchQueue if fault == "queue" else InvalidInput):
        await commit(transaction)
    await nothing_happened(broker, jobs, feed, connection)
    await commit(without(transaction, fault))
    assert bodies(await broker.queues.browse(jobs)) == [b"put"]


def without(transaction: Transaction, fault: str) -> Transaction:
    """The same transaction without its fault."""
    steps: dict[str, list[Any]] = {
        "queue": transaction.puts,
        "headers": transaction.puts,
        "entry": transaction.said,
        "lease": transaction.settled,
        "name": transaction.publishes,
    }
    steps[fault].pop()
    return transaction


async def test_readers_are_woken(broker: Broker, second: Broker) -> None:
    """Whoever waits for what a transaction sends, here or at another node, gets it when it is committed."""
    await until_nodes(2, broker, second)
    jobs, more = await queue(broker), await queue(broker, "more")
    inbox, _ = await subscriber(second, "sent")
    takers = [start(at.queues.take(which, wait=60)) for at, which in ((broker, jobs), (second, more))]
    await until_waiting_for(broker, jobs)
    await until_waiting_for(second, more)
    transaction = broker.transaction()
    transaction.publish("sent", b"x")
    for each in (jobs, more):
        transaction.put(each, Letter(b"y"))
    await commit(transaction)
    async with asyncio.timeout(60):
        assert [bodies(await taker) for taker in takers] == [[b"y"], [b"y"]]
        await inbox.until(1)


async def test_order_within(broker: Broker) -> None:
    """What a transaction sends to one place arrives in the order of sending."""
    jobs = await queue(broker)
    transaction = broker.transaction()
    for n in range(100):
        transaction.publish("sent", b"%d" % n)
        transaction.put(jobs, Letter(b"%d" % n))
    await commit(transaction)
    expected = [b"%d" % n for n in range(100)]
    assert await everything(broker, "sent") == expected
    assert bodies(await broker.queues.take(jobs, limit=100)) == expected


async def test_counts(broker: Broker) -> None:
    """What a publisher sends again, in a transaction or outside, is stored once."""
    jobs = await queue(broker)
    alice = await broker.publishers.find("alice", lasting=False)
    for _ in range(2):
        transaction = broker.transaction()
        transaction.publish("sent", b"x", publisher=alice, count=1)
        transaction.put(jobs, Letter(b"y"), publisher=alice, count=1)
        await commit(transaction)
    await broker.topics.publish("sent", [b"x"], publisher=alice, count=1)
    assert await everything(broker, "sent") == [b"x"]
    assert bodies(await broker.queues.take(jobs, limit=9)) == [b"y"]


async def test_failed_entries_come_again(dsn: str) -> None:
    """What failed in a transaction comes again like anything that failed."""
    async with node(dsn) as broker:
        inbox, feed = await subscriber(broker, acknowledged=True)
        await broker.topics.publish("news", [b"0"])
        await inbox.until(1)
        transaction = broker.transaction()
        transaction.nack(feed, 1, 0, cumulative=True, reason="no")
        await commit(transaction)
        await inbox.until(2)
        assert inbox.got[1] == (1, 0, b"0", 1, True)


async def test_a_topic_that_has_changed(broker: Broker, connection: Connection) -> None:
    """When topics have other partitions than the node knew, or are gone, everything is placed anew; also
    with more transactions at a time than there are connections."""
    for name in ("wide", "gone"):
        await broker.topics.publish(name, [b"first"])
    known = {name: await broker.topics.names.find(name) for name in ("wide", "gone")}
    await broker.topics.grow("wide", 2)
    await broker.topics.delete("gone")
    await until_heard(broker, connection)
    for name, topic in known.items():
        broker.topics.names.learn(name, topic)  # as if the news had not come yet
    many = []
    for n in range(20):
        transaction = broker.transaction()
        for name in ("steady", "wide", "gone"):
            transaction.publish(name, b"%d" % n, key=f"{n}")
        many.append(transaction)
    async with asyncio.timeout(60):
        await asyncio.gather(*map(commit, many))
    assert len(await everything(broker, "steady")) == 20
    assert len(await everything(broker, "gone")) == 20
    assert len(await everything(broker, "wide") + await everything(broker, "wide", 2)) == 21


async def test_refused_by_the_store(broker: Broker, connection: Connection) -> None:
    """What PostgreSQL refuses fails with the reason, as a whole."""
    jobs, feed = await prepared(broker)
    transaction = await five_steps(broker, jobs, feed)
    await connection.execute("alter table nuncius.messages add constraint no_puts check (message <> 'put')")
    with pytest.raises(CallFailed, match="no_puts"):
        await commit(transaction)
    await nothing_happened(broker, jobs, feed, connection)


async def test_a_broken_connection(broker: Broker, connection: Connection, other: Connection) -> None:
    """When the connection breaks in the middle the client learns that the outcome is unknown; nothing has
    happened, and what it acknowledged is outstanding again."""
    jobs, feed = await prepared(broker)
    transaction = await five_steps(broker, jobs, feed)
    await other.execute("begin")
    await other.execute("select nuncius.purge_queues($1)", [jobs])
    committing = start(commit(transaction))
    await until_somebody_waits(connection, "nuncius pool")
    assert outstanding(feed) == 0
    await connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock'"
        " and datname = current_database() and application_name = 'nuncius pool'"
    )
    with pytest.raises(OutcomeUnknown):
        await committing
    await other.execute("rollback")
    await nothing_happened(broker, jobs, feed, connection)
    await commit(transaction)
    assert outstanding(feed) == 0


async def test_a_node_taken_for_dead(broker: Broker, connection: Connection) -> None:
    """A transaction that settles a message which went back meanwhile does not count: the message comes
    again, and whatever was made of it would be there twice."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x")
    one = await lease_one(broker, jobs)
    await connection.execute("insert into nuncius.holders values (1000)")
    await connection.execute("update nuncius.leases set holder = 1000")
    for _ in range(2):  # it failed, and it is due
        await connection.execute("select nuncius.return_leases(0, 10)")
    transaction = broker.transaction()
    transaction.put(jobs, Letter(b"made of x"))
    transaction.settle([one.lease_id])
    with pytest.raises(InvalidInput, match="any more"):
        await commit(transaction)
    again = await lease(broker, jobs, limit=9)
    assert (contents(again), again[0].attempts) == ([b"x"], 1)


async def test_a_callback_that_fails(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """A client that fails on the answer is logged; the transaction is committed all the same."""

    def fail(_: Any) -> None:
        raise RuntimeError("on purpose")

    transaction = broker.transaction()
    transaction.publish("sent", b"x")
    with caplog.at_level(logging.ERROR):
        transaction.commit_soon(fail)
        await until(lambda: "a caller failed on its answer" in caplog.text)
    assert await everything(broker, "sent") == [b"x"]


async def test_too_much(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction is kept in memory, so there is a limit to its steps and its size."""
    monkeypatch.setattr(transactions, "MAX_STEPS", 2)
    monkeypatch.setattr(transactions, "MAX_BYTES", 10)
    transaction = broker.transaction()
    transaction.publish("sent", b"x" * 8)
    transaction.settle([1])
    with pytest.raises(InvalidInput, match="2 steps"):
        transaction.release([2], "no")
    with pytest.raises(InvalidInput, match="10 bytes"):
        broker.transaction().put(1, Letter(b"x" * 11))


async def test_a_lock_that_is_held_for_long(broker: Broker, other: Connection, observer: Connection) -> None:
    """Transactions that wait for somebody's lock leave connections to everybody else."""
    await broker.topics.publish("busy", [b"x"])
    await other.execute("begin")
    await other.execute("select nuncius.publish('busy', 'mine')")
    waiting = []
    for n in range(20):
        transaction = broker.transaction()
        transaction.publish("busy", b"%d" % n)
        waiting.append(start(commit(transaction)))
    await until_somebody_waits(observer, "nuncius pool", transactions.AT_A_TIME)
    async with asyncio.timeout(60):
        await queue(broker)
    await other.execute("commit")
    await asyncio.gather(*waiting)
    assert len(await everything(broker, "busy")) == 22


async def deadlocks(connection: Connection) -> int:
    count: int = await connection.fetchval(
        "select deadlocks from pg_stat_database where datname = current_database()"
    )
    return count


async def test_locks_are_taken_in_order(broker: Broker, second: Broker, connection: Connection) -> None:
    """Transactions over the same topics and queues, in whatever order they name them, among batches of puts
    and publishes at two nodes: nobody fails, no deadlock has to be broken, everything is there."""
    queues = [await queue(broker, f"queue {n}") for n in range(3)]
    topics = [f"topic {n}" for n in range(3)]
    for name in topics:
        await broker.topics.create(name, 2)
    before = await deadlocks(connection)

    async def transact(at: Broker, turn: int) -> None:
        for n in range(20):
            transaction = at.transaction()
            for step in range(3):
                which = (turn + step * (1 + turn % 2)) % 3
                transaction.put(queues[which], Letter(b"%d" % n))
                transaction.publish(topics[which], b"%d" % n, key=f"{step}")
            await commit(transaction)

    async def batches(at: Broker, turn: int) -> None:
        for n in range(20):
            await asyncio.gather(
                *(put(at, queues[(turn + m) % 3], b"%d" % n) for m in range(3)),
                *(at.topics.publish(topics[(turn - m) % 3], [b"%d" % n] * 4) for m in range(3)),
                at.queues.put_into_all(queues[:: 1 - 2 * (turn % 2)], Letter(b"all")),
            )

    async with asyncio.timeout(90):
        await asyncio.gather(
            *(transact(at, n) for n in range(4) for at in (broker, second)),
            *(batches(at, n) for n in range(2) for at in (broker, second)),
        )
    infos = await broker.queues.info([f"queue {n}" for n in range(3)])
    assert [info.depth for info in infos] == [8 * 20 + 4 * 40] * 3
    for topic in await broker.topics.find(topics):
        assert sum(part.next_offset for part in topic.partitions) == 8 * 20 + 4 * 20 * 4
    assert await deadlocks(connection) == before
