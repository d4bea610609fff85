"""Leases for workers that call SQL: beside each other, for a time, with or without a node."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from fix_connections import Connect
from nuncius.store.driver import Connection
from racing import until, until_waiting
from store.queue_sql import Run, put_many, queue


@pytest.fixture
async def jobs(connection: Connection) -> int:
    """The queue `jobs`."""
    return await queue(connection, "jobs")


@pytest.fixture
async def heard(observer: Connection) -> AsyncIterator[list[str]]:
    """Notifications that nodes receive."""
    words: list[str] = []
    await observer.add_listener("nuncius", lambda *event: words.append(str(event[3])))
    yield words
    await observer.reset()


async def lease(worker: Connection, arguments: str = "'jobs'", *values: Any) -> list[asyncpg.Record]:
    return await worker.fetch(f"select * from nuncius.lease({arguments})", *values)


async def put(
    connection: Connection, jobs: int, *bodies: bytes, priority: int = 5, receiver: int = 0
) -> None:
    await put_many(connection, Run(jobs, list(bodies), priority, receiver=receiver))


async def end_all(connection: Connection) -> None:
    """The time of all leases is over, and every pause."""
    await connection.execute("update nuncius.leases set due_at = now() where holder <= 0")


async def contents(connection: Connection, name: str = "jobs") -> list[bytes]:
    rows = await connection.fetch(
        "select message from nuncius.messages join nuncius.queues using (queue_id) where queue_name = $1"
        " order by message_id",
        name,
    )
    return [row["message"] for row in rows]


async def test_lease_and_settle(connection: Connection, other: Connection, jobs: int) -> None:
    """A worker gets the most urgent messages, in order, and no other gets them; settled, they are gone."""
    await put(connection, jobs, b"a", b"b", b"c")
    await put(connection, jobs, b"urgent", priority=9)
    found = await lease(connection, "'jobs', count => 3, seconds => 60")
    assert [(one["body"], one["priority"], one["attempts"]) for one in found] == [
        (b"urgent", 9, 0),
        (b"a", 5, 0),
        (b"b", 5, 0),
    ]
    (rest,) = await lease(other, "'jobs', 10")
    assert rest["body"] == b"c"
    ids = [one["lease_id"] for one in found]
    assert await connection.fetchval("select nuncius.settle('jobs', $1)", ids) == 3
    await end_all(connection)
    assert [one["body"] for one in await lease(other, "'jobs', 10")] == [b"c"]


async def test_what_comes_with_a_lease(connection: Connection, jobs: int) -> None:
    """A lease shows the headers, the sender, the receiver and the context; a receiver sees what is for it."""
    await connection.execute(
        "select ids from nuncius.put_many($1, null, null, '{1}', '{3}', '{4}', '{5}', '{6}', $2, $3)",
        *([jobs], ['{"lang": "de"}'], [b"x"]),
    )
    assert await lease(connection) == []
    assert await lease(connection, "'jobs', receiver => 9") == []
    (one,) = await lease(connection, "'jobs', receiver => 4")
    assert (one["headers"], one["sender_id"], one["receiver_id"], one["context"]) == (
        '{"lang": "de"}',
        3,
        4,
        5,
    )


async def test_many_workers(connection: Connection, connect: Connect, jobs: int) -> None:
    """Workers of one queue share its messages: each message is worked on once, and none is left."""
    await put(connection, jobs, *(b"%d" % n for n in range(300)))

    async def work(worker: Connection) -> list[bytes]:
        done: list[bytes] = []
        while found := await lease(worker, "'jobs', count => 7"):
            async with worker.transaction():
                await worker.execute("select nuncius.settle('jobs', $1)", [one["lease_id"] for one in found])
            done += [one["body"] for one in found]
        return done

    shares = await asyncio.gather(*[work(await connect()) for _ in range(8)])
    assert sorted(body for share in shares for body in share) == sorted(b"%d" % n for n in range(300))
    assert await connection.fetchval("select count(*) from nuncius.leases") == 0


async def test_workers_do_not_block_each_other(connection: Connection, other: Connection, jobs: int) -> None:
    """While the transaction of a worker's work is open, others lease, settle, extend, give back and put."""
    await put(connection, jobs, b"a", b"b", b"c", b"d")
    (mine,) = await lease(connection)
    async with connection.transaction():
        await connection.execute("select nuncius.settle('jobs', $1)", [mine["lease_id"]])
        await other.execute("set lock_timeout = '5s'")
        ids = [one["lease_id"] for one in await lease(other, "'jobs', 3")]
        assert await other.fetchval("select nuncius.extend('jobs', $1, seconds => 90)", ids) == 3
        assert await other.fetchval("select nuncius.settle('jobs', $1)", ids[:1]) == 1
        assert await other.fetchval("select nuncius.release('jobs', $1)", ids[1:2]) == 1
        assert await other.fetchval("select nuncius.release('jobs', $1, 'no')", ids[2:]) == 1
        await put(other, jobs, b"e")
    assert await contents(other) == [b"c", b"e"]


async def test_a_worker_that_dies(connection: Connection, connect: Connect, jobs: int) -> None:
    """A killed worker's message is leased to another when its time is over, without a node, and counted."""
    await put(connection, jobs, b"a")
    worker = await connect()
    await lease(worker, "'jobs', seconds => 60")
    await connection.execute("select pg_terminate_backend($1, 60000)", worker.get_server_pid())
    assert await lease(connection) == []
    await end_all(connection)
    (again,) = await lease(connection)
    assert (again["body"], again["attempts"]) == (b"a", 1)
    reason = await connection.fetchval("select reason from nuncius.leases")
    assert reason == "not acknowledged in time"


async def test_a_lease_of_no_time(connection: Connection, other: Connection, jobs: int) -> None:
    """A lease of 0 seconds is over at once: the next worker gets the message, the first may not settle it."""
    await put(connection, jobs, b"a")
    (first,) = await lease(connection, "'jobs', seconds => 0")
    (second,) = await lease(other)
    assert (second["body"], second["attempts"]) == (b"a", 1)
    for call in ("settle('jobs', $1)", "extend('jobs', $1)", "release('jobs', $1)"):
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match=r"not leased .* any more"):
            await connection.execute(f"select nuncius.{call}", [first["lease_id"]])


async def test_a_late_settle_undoes_the_work(connection: Connection, jobs: int) -> None:
    """A worker that settles too late, if only one of its leases, fails: its work is rolled back."""
    await connection.execute("create table done (body bytea)")
    await put(connection, jobs, b"a", b"b")
    late, good = await lease(connection, "'jobs', 2")
    await connection.execute("update nuncius.leases set due_at = now() where lease_id = $1", late["lease_id"])
    await connection.execute("begin")
    await connection.execute("insert into done values ('a'), ('b')")
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError) as refused:
        await connection.execute("select nuncius.settle('jobs', $1)", [late["lease_id"], good["lease_id"]])
    await connection.execute("commit")  # which is a rollback after an error
    assert str(late["lease_id"]) in str(refused.value)
    assert "lease again" in str(refused.value.hint)
    assert await connection.fetchval("select count(*) from done") == 0
    assert await connection.fetchval("select nuncius.settle('jobs', $1)", [good["lease_id"]]) == 1


async def test_settled_first_the_lease_does_not_end(
    connection: Connection, other: Connection, jobs: int
) -> None:
    """Once a transaction has settled a lease, its time cannot run out before the transaction ends."""
    await put(connection, jobs, b"a")
    (mine,) = await lease(connection, "'jobs', seconds => 60")
    async with connection.transaction():
        await connection.execute("select nuncius.settle('jobs', $1)", [mine["lease_id"]])
        assert await lease(other, "'jobs', count => 5") == []
        assert await other.fetchval("select moved from nuncius.return_leases(0, 10)") == 0
    assert await lease(other) == []


async def test_extend(connection: Connection, other: Connection, jobs: int) -> None:
    """A lease that is extended lasts longer: so many seconds from now on."""
    await put(connection, jobs, b"a")
    (mine,) = await lease(connection, "'jobs', seconds => 60")
    assert (
        await connection.fetchval("select nuncius.extend('jobs', $1, seconds => 0)", [mine["lease_id"]]) == 1
    )
    (again,) = await lease(other)
    assert await other.fetchval("select nuncius.extend('jobs', $1, 7200)", [again["lease_id"]]) == 1
    left = await connection.fetchval("select due_at > now() + interval '1 hour' from nuncius.leases")
    assert left


async def test_released_without_a_reason(connection: Connection, jobs: int, heard: list[str]) -> None:
    """A message that is given back without a reason is there at once, uncounted, and nodes are told."""
    await put(connection, jobs, b"a")
    (mine,) = await lease(connection)
    heard.clear()
    assert await connection.fetchval("select nuncius.release('jobs', $1)", [mine["lease_id"]]) == 1
    await until(lambda: heard)
    assert heard == [f"q{jobs}"]
    (again,) = await lease(connection)
    assert (again["body"], again["attempts"]) == (b"a", 0)


async def test_released_with_a_reason(connection: Connection, jobs: int, heard: list[str]) -> None:
    """A failed attempt is made again after its delay, by the next lease; nodes are told."""
    await put(connection, jobs, b"a")
    (mine,) = await lease(connection)
    call = "select nuncius.release('jobs', $1, reason => 'no printer', delay => 3600)"
    assert await connection.fetchval(call, [mine["lease_id"]]) == 1
    assert await lease(connection) == []
    (failure,) = await connection.fetch("select * from nuncius.list_failures()")
    assert "no printer" in failure.values()
    heard.clear()
    await end_all(connection)
    (again,) = await lease(connection)
    await until(lambda: heard)
    assert (again["body"], again["attempts"], heard) == (b"a", 1, [f"q{jobs}"])


async def test_dead_letters(connection: Connection, jobs: int) -> None:
    """After so many attempts a message is a dead letter, whether it was given back or its time was over."""
    await put(connection, jobs, b"bad", b"slow")
    for attempts in range(3):
        bad, slow = await lease(connection, "'jobs', 2, max_attempts => 3")
        assert (bad["body"], bad["attempts"], slow["attempts"]) == (b"bad", attempts, attempts)
        await connection.execute(
            "select nuncius.release('jobs', $1, 'broken', delay => 0, max_attempts => 3)", [bad["lease_id"]]
        )
        await end_all(connection)
    assert await lease(connection, "'jobs', 2, max_attempts => 3") == []
    assert sorted(await contents(connection, "dead/jobs")) == [b"bad", b"slow"]
    letters = await lease(connection, "'dead/jobs', 2")
    assert {one["body"]: "broken" in one["headers"] for one in letters} == {b"bad": True, b"slow": False}


async def test_rollback(connection: Connection, other: Connection, jobs: int) -> None:
    """A lease that is rolled back never was; so are a settle and a release."""
    await put(connection, jobs, b"a")
    for _ in range(2):
        transaction = connection.transaction()
        await transaction.start()
        assert len(await lease(connection)) == 1
        await transaction.rollback()
    (mine,) = await lease(connection)
    for call in ("settle('jobs', $1)", "release('jobs', $1)", "release('jobs', $1, 'no')"):
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(f"select nuncius.{call}", [mine["lease_id"]])
        await transaction.rollback()
        assert await lease(other) == []
    assert await connection.fetchval("select nuncius.settle('jobs', $1)", [mine["lease_id"]]) == 1


async def test_a_lease_in_an_open_transaction(
    connection: Connection, other: Connection, observer: Connection, jobs: int
) -> None:
    """A lease waits for the end of another transaction that has leased, and is not told "empty" meanwhile."""
    await put(connection, jobs, b"a")
    transaction = connection.transaction()
    await transaction.start()
    await lease(connection)
    waiting = asyncio.ensure_future(lease(other))
    await until_waiting(observer, other.get_server_pid())
    await transaction.rollback()
    assert [one["body"] for one in await waiting] == [b"a"]


async def test_when_a_session_looks_for_what_is_overdue(connection: Connection, jobs: int) -> None:
    """A session that finds enough looks once a second for what is overdue; one that finds too little always
    looks."""
    await put(connection, jobs, b"overdue", priority=9)
    await put(connection, jobs, b"a", b"b", b"c", priority=1)
    last_look = f"set nuncius.overdue_{jobs} = "
    await lease(connection, "'jobs', seconds => 0")
    assert float(await connection.fetchval(f"show nuncius.overdue_{jobs}")) > 0
    await connection.execute(last_look + "1e10")  # not a second ago
    assert [one["body"] for one in await lease(connection)] == [b"a"]
    await connection.execute(last_look + "0")  # long ago
    assert [one["body"] for one in await lease(connection, "'jobs', seconds => 0")] == [b"overdue"]
    await connection.execute(last_look + "1e10")
    assert [one["body"] for one in await lease(connection, "'jobs', 3")] == [b"overdue", b"b", b"c"]


async def test_a_session_begins_where_it_was(connection: Connection, other: Connection, jobs: int) -> None:
    """A session remembers, by priority and receiver, up to which message all are gone; none is missed."""
    await put(connection, jobs, b"a", b"b", priority=3)
    await put(connection, jobs, b"mine", priority=3, receiver=7)
    (first,) = await lease(connection, "'jobs', receiver => 7")
    places = (await connection.fetchval(f"show nuncius.place_{jobs}_7"))[1:-1].split(",")
    assert [int(place) for place in places] == [0, 0, first["lease_id"], *[0] * 17]
    await connection.execute(f"set nuncius.overdue_{jobs} = 1e10")
    expected = [b"high", b"b", b"mine", b"low"]
    await put(other, jobs, b"low", priority=1)
    await put(other, jobs, b"high", priority=4)
    for _ in range(2):  # what is rolled back is not passed over
        await connection.execute("begin")
        found = [(await lease(connection, "'jobs', receiver => 7"))[0]["body"] for _ in range(4)]
        assert found == expected
        await connection.execute("rollback")
    assert [one["body"] for one in await lease(other, "'jobs', 2")] == [b"high", b"b"]
    assert [one["body"] for one in await lease(connection, "'jobs', 9, receiver => 7")] == [b"mine", b"low"]


async def test_what_is_overdue_when_the_queue_is_locked(
    connection: Connection, other: Connection, jobs: int
) -> None:
    """While an open transaction has put into the queue, what is overdue stays; workers get the rest."""
    await put(connection, jobs, b"overdue", b"b")
    await lease(connection, "'jobs', seconds => 0")
    async with other.transaction():
        await put(other, jobs, b"c")
        assert [one["body"] for one in await lease(connection, "'jobs', 5")] == [b"b"]
    assert [one["body"] for one in await lease(connection, "'jobs', 5")] == [b"c", b"overdue"]


async def test_other_queues_are_left_alone(connection: Connection, jobs: int) -> None:
    """A lease returns what is overdue in its own queue only; leases of another queue are not this queue's."""
    more = await queue(connection, "more")
    await put(connection, jobs, b"a")
    await put(connection, more, b"b")
    (mine,) = await lease(connection, "'more', seconds => 0")
    assert [one["body"] for one in await lease(connection)] == [b"a"]
    assert await contents(connection, "more") == []
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError):
        await connection.execute("select nuncius.settle('jobs', $1)", [mine["lease_id"]])
    assert [one["body"] for one in await lease(connection, "'more'")] == [b"b"]


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_an_old_snapshot(connection: Connection, other: Connection, jobs: int, level: str) -> None:
    """Where snapshots are kept, a lease of what is gone since, and a settle of what has ended since, are
    errors to retry."""
    for late in ("settle('jobs', $1)", "lease('jobs', cardinality($1::bigint[]))"):
        await put(connection, jobs, b"a", b"b")
        (mine,) = await lease(connection)
        await connection.execute(f"begin isolation level {level}")
        await connection.execute("select count(*) from nuncius.leases")
        await end_all(other)
        await lease(other, "'jobs', 5")
        with pytest.raises(asyncpg.SerializationError):
            await connection.execute(f"select from nuncius.{late}", [mine["lease_id"]])
        await connection.execute("rollback")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("lease('nothing')", asyncpg.UndefinedObjectError),
        ("settle('nothing', '{1}')", asyncpg.UndefinedObjectError),
        ("release('nothing', '{1}')", asyncpg.UndefinedObjectError),
        ("extend('nothing', '{1}')", asyncpg.UndefinedObjectError),
        ("lease('jobs', count => -1)", asyncpg.InvalidParameterValueError),
        ("lease('jobs', count => null)", asyncpg.InvalidParameterValueError),
        ("lease('jobs', seconds => -1)", asyncpg.InvalidParameterValueError),
        ("lease('jobs', seconds => 'NaN')", asyncpg.InvalidParameterValueError),
        ("lease('jobs', seconds => null)", asyncpg.InvalidParameterValueError),
        ("lease('jobs', max_attempts => 0)", asyncpg.InvalidParameterValueError),
        ("extend('jobs', '{}', seconds => 'infinity')", asyncpg.InvalidParameterValueError),
        ("release('jobs', '{}', delay => 5)", asyncpg.InvalidParameterValueError),
        ("release('jobs', '{}', 'no', delay => -5)", asyncpg.InvalidParameterValueError),
        ("release('jobs', '{}', 'no', max_attempts => null)", asyncpg.InvalidParameterValueError),
        ("settle('jobs', '{77}')", asyncpg.ObjectNotInPrerequisiteStateError),
    ],
)
async def test_nonsense(connection: Connection, jobs: int, call: str, error: type[Exception]) -> None:
    """A queue that is not there, and arguments that make no sense, are errors."""
    await put(connection, jobs, b"a")
    with pytest.raises(error):
        await connection.execute(f"select * from nuncius.{call}")
    assert await contents(connection) == [b"a"]


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("ids", ["'{}'", "null"])
async def test_no_leases(connection: Connection, ids: str) -> None:
    """To settle, extend or release no leases is nothing."""
    for call in ("settle", "extend", "release"):
        assert await connection.fetchval(f"select nuncius.{call}('jobs', {ids})") == 0
    assert await lease(connection, "'jobs', 0") == []
