"""Leases through the broker: consumers who acknowledge, come and go, and nodes that die under them."""

import asyncio
import logging
from typing import Any

import pytest

from broker.acknowledging import (
    QUICK,
    contents,
    held,
    lease,
    lease_one,
    lose_next_lease,
    node,
    off_duty,
    returned,
)
from broker.inside import put, queue, start, until_waiting_for
from fix_broker import NEVER
from fix_store import execute, other_database
from nuncius.broker import Broker, future
from nuncius.broker.background import listener
from nuncius.broker.background.duties import Duties
from nuncius.broker.errors import InvalidInput, NoSuchQueue
from nuncius.broker.limits import Limits
from nuncius.broker.model import Letter
from nuncius.store.driver import Connection
from nuncius.store.server.embedded import EmbeddedServer
from racing import backends, terminate, until, until_somebody_waits


def holder(broker: Broker) -> int:
    return broker._listener.holder  # noqa: SLF001


async def locked_by(observer: Connection) -> set[int]:
    """The backends that have a lock on a node's number."""
    rows = await observer.fetch(
        "select pid from pg_locks where locktype = 'advisory' and classid = 78009 and granted"
        " and database = (select oid from pg_database where datname = current_database())"
    )
    return {row["pid"] for row in rows}


async def test_limits_of_a_lease(broker: Broker) -> None:
    """One may ask for many at once, within the limits of a take."""
    jobs = await queue(broker)
    await put(broker, jobs, *(b"%d" % n for n in range(5)))
    assert contents(await lease(broker, jobs, limit=3)) == [b"0", b"1", b"2"]
    assert contents(await lease(broker, jobs, limit=3)) == [b"3", b"4"]
    assert await lease(broker, jobs) == []
    with pytest.raises(InvalidInput):
        await lease(broker, jobs, limit=0)


@pytest.mark.parametrize("way", ["lease", "timed lease", "transaction"])
async def test_the_retry_delay_is_exact(dsn: str, no_safety_net: None, way: str) -> None:  # noqa: ARG001
    """A message that failed comes again when its delay is over, not with the next turn of the duty that looks
    for such messages."""
    async with node(dsn, QUICK) as broker:
        await broker.duties.close()
        broker.duties = Duties(broker.store, broker.leases, return_every=NEVER)
        broker.duties.start()
        jobs = await queue(broker)
        for n in range(3):
            await put(broker, jobs, b"%d" % n)
            if way == "timed lease":
                (one,) = await broker.timed_leases.lease(jobs, seconds=NEVER)
                await broker.timed_leases.release(jobs, [one.lease_id], reason="no")
            else:
                one = await lease_one(broker, jobs)
                if way == "lease":
                    await broker.leases.release([one.lease_id], reason="no")
                else:
                    transaction = broker.transaction()
                    transaction.release([one.lease_id], "no")
                    committed, done = future.new()
                    transaction.commit_soon(done)
                    await committed
            again = await lease_one(broker, jobs)
            assert (again.message.body, again.attempts) == (b"%d" % n, 1)
            await broker.leases.settle([again.lease_id])


async def test_readers_of_dead_letters(dsn: str) -> None:
    """Readers who wait for dead letters are woken by them."""
    async with node(dsn, Limits(max_attempts=1)) as broker:
        jobs = await queue(broker)
        dead = await broker.queues.ensure("dead/jobs")
        waiting = start(broker.queues.take(dead.queue_id, wait=60))
        await until_waiting_for(broker, dead.queue_id)
        await put(broker, jobs, b"x")
        await broker.leases.release([(await lease_one(broker, jobs)).lease_id], reason="no")
        assert [letter.body for letter in await waiting] == [b"x"]


@pytest.mark.parametrize("reason", ["a\0b", "\ud800", "x" * 100_000, ""])
async def test_any_reason_will_do(broker: Broker, reason: str) -> None:
    """Whatever a client says of its failure, the failure is noted."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x")
    await broker.leases.release([(await lease_one(broker, jobs)).lease_id], reason=reason)
    (failure,) = await broker.failures()
    assert failure.reason is not None
    assert len(failure.reason) <= 1000


async def test_two_nodes_lease_in_strict_order(broker: Broker, second: Broker) -> None:
    """Two nodes that lease from one queue in turn get everything once, by priority, oldest first."""
    jobs = await queue(broker)
    await put(broker, jobs, *(Letter(b"%d" % n, 1 + (7 * n) % 10) for n in range(60)))
    taken = []
    for n in range(60):
        (one,) = await lease((broker, second)[(n // 3) % 2], jobs)
        assert one.attempts == 0
        taken.append((-one.message.priority, int(one.message.body)))
        if n % 2:
            await (broker, second)[n % 4 // 2].leases.settle([one.lease_id])
    assert taken == sorted(taken)
    assert len(set(taken)) == 60


# Consumers who go away


async def test_a_consumer_that_leaves_while_the_store_is_away(
    dsn: str, server: EmbeddedServer, connection: Connection, observer: Connection
) -> None:
    """If the store cannot be told that nobody wants a message any more, or that its consumer is done with it,
    it is told when it is back."""
    name = await connection.fetchval("select current_database()")
    database = other_database(server.dsn, "postgres")
    async with node(dsn) as broker:
        jobs = await queue(broker)
        await put(broker, jobs, b"x", b"y")
        one, other = [await lease_one(broker, jobs) for _ in range(2)]
        for combiner in (broker.leases._releasing, broker.leases._settling):  # noqa: SLF001
            combiner._lane._patience = 0.1  # noqa: SLF001
        await asyncio.to_thread(execute, database, f"alter database {name} allow_connections false")
        try:
            await terminate(observer, "nuncius release")
            await terminate(observer, "nuncius settle")
            broker.leases.give_up([one.lease_id])
            broker.leases.finish([other.lease_id])
            await until(lambda: len(broker.leases._untold) == 2)  # noqa: SLF001
        finally:
            await asyncio.to_thread(execute, database, f"alter database {name} allow_connections true")
        again = await lease_one(broker, jobs)
        assert (again.message.body, again.attempts) == (b"x", 0)

        async def only_that_one() -> bool:
            return len(await held(connection)) == 1

        await until(only_that_one)


async def test_a_callback_that_fails(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """A consumer that fails on its answer is logged, and does not keep others from theirs."""
    jobs = await queue(broker)

    def fail(_: Any) -> None:
        raise RuntimeError("on purpose")

    await put(broker, jobs, b"x", b"y")
    broker.queues.lease_soon(jobs, 0, fail)
    other = await lease_one(broker, jobs)
    waiting = start(lease_one(broker, jobs))
    await until_waiting_for(broker, jobs)
    with caplog.at_level(logging.ERROR):
        broker.leases.release_soon([other.lease_id], fail, reason=None)
        assert (await waiting).message.body == other.message.body
    assert "a caller failed on its answer" in caplog.text


async def test_a_queue_that_is_deleted(broker: Broker) -> None:
    """A consumer of a queue that does not exist is told, also when it has waited since there was one."""
    with pytest.raises(NoSuchQueue, match="999"):
        await lease(broker, 999, wait=60)
    jobs = await queue(broker)
    await put(broker, jobs, b"x", b"y")
    in_hand = await lease_one(broker, jobs)
    await lease_one(broker, jobs)
    waiting = start(lease(broker, jobs, wait=60))
    await until_waiting_for(broker, jobs)
    await broker.queues.delete(jobs)
    broker._listener.on_queue(None)  # noqa: SLF001  (the slow look at everything)
    with pytest.raises(NoSuchQueue):
        await waiting
    await broker.leases.settle([in_hand.lease_id])
    await broker.leases.release([in_hand.lease_id], reason="no")


async def test_a_locked_queue(broker: Broker, other: Connection) -> None:
    """While somebody puts into a queue in a long transaction, nobody waits who gives messages of it back."""
    jobs, more = await queue(broker), await queue(broker, "more")
    await put(broker, jobs, b"a")
    await put(broker, more, b"b")
    ids = [(await lease_one(broker, each)).lease_id for each in (jobs, more)]
    await other.execute("begin")
    await other.execute("select nuncius.put_message($1, 0, 0, 0, 5, 'late')", jobs)
    async with asyncio.timeout(60):
        await broker.leases.release(ids, reason=None)
        assert (await lease_one(broker, more)).message.body == b"b"
        assert await lease(broker, jobs) == []
    await other.execute("commit")
    assert (await lease_one(broker, jobs)).message.body == b"late"
    assert (await lease_one(broker, jobs)).message.body == b"a"


# Connections that break, and nodes that die


async def test_an_answer_that_is_lost(broker: Broker, connection: Connection) -> None:
    """When the connection breaks after messages were leased and before the node knows, the consumer does not
    notice, and the messages go back, uncounted."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x")
    lose_next_lease(broker)
    waiting = start(lease_one(broker, jobs))
    await until(lambda: broker.queues.leases._leaser.lost)  # noqa: SLF001
    assert await held(connection) == [(holder(broker), 1)]
    await until_waiting_for(broker, jobs)
    await broker.leases.return_due()
    assert ((await waiting).message.body, (await waiting).attempts) == (b"x", 0)
    await broker.leases.return_due()
    assert await held(connection) == [(holder(broker), 1)]


async def test_broken_connections(broker: Broker, connection: Connection, other: Connection) -> None:
    """When connections to the store break under consumers, they are repaired, and nothing is lost."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x", b"y")
    await other.execute("begin")
    await other.execute("select * from nuncius.read_message_by_priority($1, 0, 0)", jobs)
    waiting = start(lease(broker, jobs, limit=2))
    await until_somebody_waits(connection, "nuncius lease")
    assert await terminate(connection, "nuncius lease")
    await until_somebody_waits(connection, "nuncius lease")
    await other.execute("rollback")
    ids = [one.lease_id for one in await waiting]
    await broker.leases.settle([])
    await broker.leases.release([], reason=None)
    for lane in ("nuncius settle", "nuncius release"):
        assert await terminate(connection, lane) == 1
    await broker.leases.settle(ids[:1])
    await broker.leases.release(ids[1:], reason=None)
    assert contents(await lease(broker, jobs)) == [b"y"]


async def test_a_node_that_is_gone(dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node held that is gone comes again at another, counted."""
    monkeypatch.setattr(listener, "GRACE_SECONDS", 0.0)
    async with node(dsn) as staying:
        jobs = await queue(staying)
        await put(staying, jobs, b"a", b"b")
        kept = await lease_one(staying, jobs)
        async with node(dsn) as leaving:
            gone = await lease_one(leaving, jobs)
        again = await lease_one(staying, jobs)
        assert (again.message.body, again.attempts, again.origin) == (b"b", 1, gone.origin)
        assert await held(connection) == [(holder(staying), 1), (holder(staying), 2)]
        await staying.leases.settle([kept.lease_id, again.lease_id])
        (row,) = await connection.fetch("select holder from nuncius.holders")
        assert row["holder"] == holder(staying)


async def test_a_node_that_hears_nothing_for_a_moment(broker: Broker, connection: Connection) -> None:
    """A node whose listening connection breaks has its lock again at once, and keeps what it holds."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x")
    one = await lease_one(broker, jobs)
    before = await locked_by(connection)
    assert await terminate(connection, "nuncius listen") == 1

    async def back() -> bool:
        return bool(await locked_by(connection) - before)

    await until(back)
    assert await broker.leases.return_due() == 0
    await broker.leases.settle([one.lease_id])


async def test_nobody_judges_too_early(broker: Broker, connection: Connection) -> None:
    """When the server was away all nodes come back one after the other; those who are there first do not
    take the others for dead."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x")
    await lease_one(broker, jobs)
    await connection.execute("update nuncius.leases set holder = 1000")
    await connection.execute("insert into nuncius.holders values (1000)")
    assert not broker._listener.may_judge  # noqa: SLF001
    assert await broker.leases.return_due() == 0
    broker._listener._held_since -= listener.GRACE_SECONDS  # noqa: SLF001
    assert await broker.leases.return_due() == 1


async def test_a_lock_that_the_server_still_has(
    broker: Broker, other: Connection, observer: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the server has not noticed that the last connection is gone, the node listens all the same, and
    takes its lock when it can."""
    taking = start(other.execute("select pg_advisory_lock(78009, $1)", holder(broker)))
    await until_somebody_waits(observer, "")
    await terminate(observer, "nuncius listen")
    await taking
    jobs = await queue(broker)
    waiting = start(broker.queues.take(jobs, wait=60))
    await until_waiting_for(broker, jobs)
    await until(lambda: backends(observer, "nuncius listen"))

    async def heard() -> bool:
        await observer.execute("select nuncius.put_message($1, 0, 0, 0, 5, 'x')", jobs)
        return waiting.done()

    await until(heard)
    assert not broker._listener.may_judge  # noqa: SLF001
    await other.execute("select pg_advisory_unlock(78009, $1)", holder(broker))
    monkeypatch.setattr(listener, "LOOK_SECONDS", 0.01)
    await observer.execute("select pg_notify('nuncius', 'n')")

    await until(lambda: locked_by(observer))


async def test_a_number_that_is_taken(dsn: str, connection: Connection) -> None:
    """A new node passes over numbers that others hold, as after a restore from a backup."""
    await connection.execute("select pg_advisory_lock(78009, n) from generate_series(1, 3) n")
    async with node(dsn) as broker:
        assert holder(broker) == 4


async def test_many_that_failed_at_once(dsn: str, connection: Connection) -> None:
    """However much is due at a time, all of it comes back, step by step."""
    async with node(dsn) as broker:
        await off_duty(broker)
        jobs = await queue(broker)
        await connection.execute(
            "insert into nuncius.leases"
            " select n, n, $1, 0, 0, 0, 5, now(), 'x', null, 1, 0, 1, now(), now(), 'no'"
            " from generate_series(1, 5000) n",
            jobs,
        )
        await returned(broker, 5000)
        assert [info.depth for info in await broker.queues.info(["jobs"])] == [5000]
