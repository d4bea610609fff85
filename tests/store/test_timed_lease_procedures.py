"""Leases for a time in SQL: they end at their time, wherever their client is and whichever node looks."""

import asyncio

from nuncius.store.driver import Connection
from racing import until_waiting
from store.lease_sql import MOST, held, lease_many, release, return_leases
from store.queue_sql import Ask, Run, put_many, queue, take_many

TIMED = -1


async def lease_for(connection: Connection, jobs: int, seconds: float, limit: int = 1) -> list[int]:
    """What a node does: leases to itself, and then for a time."""
    ids = [row["message_id"] for row in await lease_many(connection, Ask(jobs, limit=limit))]
    timed: list[int] = await connection.fetchval("select nuncius.time_leases(1, $1, $2)", ids, seconds)
    return sorted(timed)


async def settle(connection: Connection, jobs: int, *ids: int) -> list[int]:
    ended: list[int] = await connection.fetchval("select nuncius.settle_timed($1, $2)", jobs, ids)
    return ended


async def extend(connection: Connection, jobs: int, seconds: float, *ids: int) -> list[int]:
    ended: list[int] = await connection.fetchval(
        "select nuncius.extend_timed($1, $2, $3)", jobs, ids, seconds
    )
    return ended


async def release_timed(
    connection: Connection, jobs: int, reason: str | None, *ids: int
) -> tuple[object, ...]:
    row = await connection.fetchrow(
        "select ended, queues from nuncius.release_timed($1, $2, $3, 60, $4)", jobs, ids, reason, MOST
    )
    assert row is not None
    return tuple(row)


async def end_now(connection: Connection) -> None:
    """The time of all leases is over."""
    await connection.execute("update nuncius.leases set due_at = now() where holder = -1")


async def test_settled_in_time(connection: Connection) -> None:
    """A message that is settled in time is gone for good; a second time is too late."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"x"]))
    (one,) = await lease_for(connection, jobs, 60)
    assert await held(connection) == [(TIMED, 1)]
    assert (await return_leases(connection))["moved"] == 0
    assert await take_many(connection, Ask(jobs)) == []
    assert await settle(connection, jobs, one) == []
    assert await held(connection) == []
    assert await settle(connection, jobs, one) == [one]


async def test_the_time_is_over(connection: Connection) -> None:
    """Whoever comes after the end is told so, even before anybody has looked; then the attempt has failed."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"x"]))
    (one,) = await lease_for(connection, jobs, 60)
    await end_now(connection)
    assert await settle(connection, jobs, one) == [one]
    assert await extend(connection, jobs, 60, one) == [one]
    assert await release_timed(connection, jobs, "no", one) == ([one], [])
    assert await held(connection) == [(TIMED, 1)]
    assert (await return_leases(connection))["moved"] == 1
    assert await held(connection) == [(0, 1)]
    assert await connection.fetchval("select reason from nuncius.leases") == "not acknowledged in time"
    assert await settle(connection, jobs, one) == [one]
    await connection.execute("update nuncius.leases set due_at = now()")
    assert (await return_leases(connection))["moved"] == 1
    (again,) = await lease_many(connection, Ask(jobs))
    assert (again["attempts"], again["origin"]) == (1, one)


async def test_more_time(connection: Connection) -> None:
    """What is extended ends later, or earlier if that was asked for."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"x"]))
    (one,) = await lease_for(connection, jobs, 60)
    assert await extend(connection, jobs, 3600, one) == []
    left = "select extract(epoch from due_at - now()) from nuncius.leases"
    assert 3500 < await connection.fetchval(left) <= 3600
    assert await extend(connection, jobs, 0, one) == []
    assert (await return_leases(connection))["moved"] == 1


async def test_all_or_nothing(connection: Connection) -> None:
    """When one of several has ended, none is changed, and the answer names it."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"a", b"b", b"c"]))
    ids = await lease_for(connection, jobs, 60, limit=3)
    await settle(connection, jobs, ids[1])
    assert await settle(connection, jobs, *ids, 999) == [ids[1], 999]
    assert await extend(connection, jobs, 0, *ids) == [ids[1]]
    assert await release_timed(connection, jobs, None, *ids) == ([ids[1]], [])
    assert await held(connection) == [(TIMED, 1), (TIMED, 1)]
    assert (await return_leases(connection))["moved"] == 0
    assert await settle(connection, jobs, ids[0], ids[2], ids[0]) == []
    assert await held(connection) == []


async def test_only_of_this_queue_and_kind(connection: Connection) -> None:
    """A lease of another queue, one that a node holds, and one that failed are nothing to settle here."""
    jobs, more = await queue(connection), await queue(connection, "more")
    await put_many(connection, Run(jobs, [b"a", b"b", b"c"]), Run(more, [b"x"]))
    (elsewhere,) = await lease_for(connection, more, 60)
    ids = [row["message_id"] for row in await lease_many(connection, Ask(jobs, limit=2))]
    await release(connection, ids[1:], "no")
    for each in (elsewhere, *ids):
        assert await settle(connection, jobs, each) == [each]
        assert await extend(connection, jobs, 60, each) == [each]
        assert await release_timed(connection, jobs, "no", each) == ([each], [])
    assert await connection.fetchval("select nuncius.time_leases(2, $1, 60)", ids) == []
    assert await held(connection) == [(1, 1), (0, 1), (TIMED, 1)]


async def test_dead_letters(connection: Connection) -> None:
    """A message that is never acknowledged in time ends as a dead letter that says so."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"x"]))
    for _ in range(MOST):
        await lease_for(connection, jobs, 60)
        await end_now(connection)
        await return_leases(connection)
        await connection.execute("update nuncius.leases set due_at = now()")
        await return_leases(connection)
    dead = await connection.fetchval("select queue_id from nuncius.get_queue_id('dead/jobs')")
    (letter,) = await take_many(connection, Ask(dead))
    assert '"dead-reason": "not acknowledged in time"' in letter["headers"]


async def test_no_node_holds_them(connection: Connection) -> None:
    """They do not live by a node: neither tidying up nor the death of the node that leased them ends them."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"x"]))
    (one,) = await lease_for(connection, jobs, 60)
    await connection.execute("insert into nuncius.holders values (1)")  # nobody has its lock
    await connection.execute("select nuncius.tidy()")
    assert await connection.fetchval("select min(holder) from nuncius.holders") == 1
    assert (await return_leases(connection))["moved"] == 0
    assert await settle(connection, jobs, one) == []


async def test_purged_and_deleted(connection: Connection) -> None:
    """Purging a queue leaves what is in hand; deleting it does not."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"x"]))
    await lease_for(connection, jobs, 60)
    await connection.execute("select nuncius.purge_queues($1)", [jobs])
    assert await held(connection) == [(TIMED, 1)]
    await connection.execute("select nuncius.delete_queues($1)", [jobs])
    assert await held(connection) == []


async def test_settled_at_the_last_moment(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """While somebody settles a lease, its end passes it by; who wants it meanwhile waits, and is too late."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"x"]))
    (one,) = await lease_for(connection, jobs, 60)
    await other.execute("begin")
    assert await settle(other, jobs, one) == []
    late = asyncio.ensure_future(release_timed(connection, jobs, "no", one))
    await until_waiting(observer, connection.get_server_pid())
    assert (await return_leases(observer))["moved"] == 0
    await other.execute("commit")
    assert await late == ([one], [])
