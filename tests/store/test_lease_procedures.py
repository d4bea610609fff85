"""Leases in SQL: taken with acknowledgement, settled, released, returned, and given up as dead letters."""

import asyncio
import json

import pytest

from fix_connections import Connect
from nuncius.store.driver import Connection
from racing import until_waiting
from store.lease_sql import MOST, held, hold, lease_many, release, return_leases, settle
from store.queue_sql import Ask, Run, depth, put_many, queue, take_many

NO_QUEUE, BUSY = -1, 0


async def test_strict_order(connection: Connection) -> None:
    """Leases come in the order of take_many, also among messages that come again."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"c", b"d"], 5), Run(jobs, [b"a", b"b"], 9))
    rows = await lease_many(connection, Ask(jobs, limit=4))
    assert [row["message"] for row in rows] == [b"a", b"b", b"c", b"d"]
    await release(connection, [rows[1]["message_id"], rows[3]["message_id"]], "no", 0)
    await return_leases(connection)
    await put_many(connection, Run(jobs, [b"e"], 5), Run(jobs, [b"f"], 9), Run(jobs, [b"g"], 10))
    await connection.execute("set enable_nestloop = off; set enable_hashjoin = off; set enable_seqscan = off")
    rows = await lease_many(connection, Ask(jobs, limit=9))
    assert [row["message"] for row in rows] == [b"g", b"b", b"f", b"d", b"e"]
    assert [row["attempts"] for row in rows] == [0, 1, 0, 1, 0]


async def test_several_requests(connection: Connection) -> None:
    """Requests of one call are told apart, one for a queue that does not exist among them."""
    jobs, more = await queue(connection), await queue(connection, "more")
    await put_many(connection, Run(jobs, [b"a", b"b"]), Run(more, [b"x"]))
    rows = await lease_many(connection, Ask(jobs), Ask(more, limit=5), Ask(999), Ask(jobs))
    found = [(row["request"], row["queue_id"], row["message"]) for row in rows]
    assert found == [(1, jobs, b"a"), (2, more, b"x"), (4, jobs, b"b"), (NO_QUEUE, 999, None)]


async def test_a_locked_queue(connection: Connection, other: Connection) -> None:
    """While somebody takes from a queue in a long transaction, a caller that does not wait is told so."""
    jobs, more = await queue(connection), await queue(connection, "more")
    await put_many(connection, Run(jobs, [b"a"]), Run(more, [b"x"]))
    await other.execute("begin")
    await take_many(other, Ask(jobs))
    await connection.execute("set lock_timeout = '20ms'")
    rows = await lease_many(connection, Ask(jobs), Ask(more), wait=False)
    assert [(row["request"], row["queue_id"]) for row in rows] == [(BUSY, jobs), (2, more)]
    assert await held(connection) == [(1, 1)]


async def test_what_was_never_delivered(connection: Connection) -> None:
    """Released without a reason, a message is back at once, behind its equals; nothing was counted, and it is
    known by its first id."""
    jobs = await queue(connection)
    a, b = (await put_many(connection, Run(jobs, [b"a", b"b"]))).ids
    (row,) = await lease_many(connection, Ask(jobs))
    assert await release(connection, [row["message_id"]]) == [jobs]
    assert await release(connection, [row["message_id"]]) == []
    rows = await lease_many(connection, Ask(jobs, limit=5))
    assert [(row["message"], row["attempts"], row["origin"]) for row in rows] == [(b"b", 0, b), (b"a", 0, a)]


async def test_a_failed_attempt(connection: Connection) -> None:
    """Released with a reason, a message waits for its time; then it is back, counted, with its first id."""
    jobs = await queue(connection)
    (first,) = (await put_many(connection, Run(jobs, [b"x"], 7, 3, 0, 5))).ids
    await lease_many(connection, Ask(jobs))
    assert await release(connection, [first], "no") == []
    assert (await return_leases(connection))["moved"] == 0
    assert await lease_many(connection, Ask(jobs)) == []
    await connection.execute("update nuncius.leases set due_at = now()")
    assert dict(await return_leases(connection)) == {"moved": 1, "queues": [jobs]}
    (row,) = await lease_many(connection, Ask(jobs))
    assert (row["attempts"], row["origin"], row["message"]) == (1, first, b"x")
    assert (row["priority"], row["sender_id"], row["context"]) == (7, 3, 5)
    assert row["message_id"] > first
    assert await connection.fetchval("select count(*) from nuncius.returned") == 0


async def test_times_and_headers_survive(connection: Connection) -> None:
    """A message that comes again is as old as it was, with the headers it had."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"x"]))
    await connection.execute('update nuncius.messages set headers = \'{"a": "b"}\'')
    (before,) = await lease_many(connection, Ask(jobs))
    await release(connection, [before["message_id"]], "no", 0)
    await return_leases(connection)
    (after,) = await lease_many(connection, Ask(jobs))
    assert after["time_of_arrival"] == before["time_of_arrival"]
    assert after["headers"] == before["headers"] == '{"a": "b"}'


async def test_dead_letters(connection: Connection) -> None:
    """After so many failed attempts a message is in the queue "dead/NAME", with its history in headers."""
    jobs = await queue(connection)
    (first,) = (await put_many(connection, Run(jobs, [b"x"], 7))).ids
    await connection.execute('update nuncius.messages set headers = \'{"a": "b"}\'')
    queues = []
    for n in range(MOST):
        (row,) = await lease_many(connection, Ask(jobs))
        assert row["attempts"] == n
        queues = await release(connection, [row["message_id"]], f"reason {n}", 0)
        if n < MOST - 1:
            assert queues == []
            await return_leases(connection)
    dead = await connection.fetchval("select queue_id from nuncius.get_queue_id('dead/jobs')")
    assert queues == [dead]
    (letter,) = await take_many(connection, Ask(dead))
    assert (letter["message"], letter["priority"]) == (b"x", 7)
    headers = json.loads(letter["headers"])
    assert headers.pop("dead-last-failure").endswith("Z")
    assert headers == {
        "a": "b",
        "dead-destination": "/queue/jobs",
        "dead-message-id": f"q-{first}",
        "dead-attempts": str(MOST),
        "dead-reason": f"reason {MOST - 1}",
    }
    assert await held(connection) == []


async def test_dead_letters_are_tried_for_ever(connection: Connection) -> None:
    """There is no dead letter of a dead letter: it waits for its next attempt like any message."""
    dead = await queue(connection, "dead/jobs")
    await put_many(connection, Run(dead, [b"x"]))
    for n in range(MOST + 2):
        (row,) = await lease_many(connection, Ask(dead))
        assert row["attempts"] == n
        assert await release(connection, [row["message_id"]], "no") == []
        assert await lease_many(connection, Ask(dead)) == []
        await connection.execute("update nuncius.leases set due_at = now()")
        await return_leases(connection)
    assert await connection.fetchval("select count(*) from nuncius.queues") == 1


async def test_several_released_together(connection: Connection) -> None:
    """Of one call, some go back, some wait, some are dead, and those that nobody holds are left alone."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"%d" % n for n in range(4)]))
    rows = await lease_many(connection, Ask(jobs, limit=4))
    ids = [row["message_id"] for row in rows]
    await connection.execute("update nuncius.leases set attempts = $1 where lease_id = $2", MOST, ids[2])
    await settle(connection, ids[3])
    queues = await connection.fetchval(
        "select nuncius.release_many($1, $2, 60, $3)",
        [*ids, ids[0], 999],
        [None, "no", "no", None, None, "no"],
        MOST,
    )
    dead = await connection.fetchval("select queue_id from nuncius.get_queue_id('dead/jobs')")
    assert sorted(queues) == sorted([jobs, dead])
    assert await held(connection) == [(0, 1)]
    assert (await depth(connection, jobs), await depth(connection, dead)) == (1, 1)


async def test_acknowledged_after_all(connection: Connection) -> None:
    """A consumer whose node was taken for dead can still acknowledge, until the message has gone back."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"a", b"b"]))
    ids = [row["message_id"] for row in await lease_many(connection, Ask(jobs, limit=2))]
    await connection.execute("insert into nuncius.holders values (1)")
    assert (await return_leases(connection))["moved"] == 2
    assert await held(connection) == [(0, 1), (0, 1)]
    assert await settle(connection, ids[0]) == ids[:1]
    assert await release(connection, ids[1:]) == []  # that it failed is known already
    await connection.execute("update nuncius.leases set due_at = now()")
    await return_leases(connection)
    assert await settle(connection, ids[1]) == []
    assert await depth(connection, jobs) == 1


async def test_a_node_that_is_gone(connection: Connection, other: Connection, connect: Connect) -> None:
    """What a node held whose lock is free counts as failed; what others hold is theirs."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"a", b"b"]))
    node = await connect()
    await hold(node, 1)
    await hold(other, 2)
    await lease_many(connection, Ask(jobs), holder=1)
    await lease_many(connection, Ask(jobs), holder=2)
    assert (await return_leases(connection))["moved"] == 0
    await node.close()
    assert (await return_leases(connection, judge=False))["moved"] == 0
    assert (await return_leases(connection))["moved"] == 1
    assert await held(connection) == [(0, 1), (2, 1)]
    reason = await connection.fetchval("select reason from nuncius.leases where holder = 0")
    assert reason == "the node that delivered it is gone"
    assert [row["holder"] for row in await connection.fetch("select * from nuncius.holders")] == [2]


async def test_subscribers_of_a_node_that_is_gone(connection: Connection, other: Connection) -> None:
    """Subscriptions that live by a node end with it; durable ones, and those of other nodes, stay."""
    await hold(other, 2)
    await connection.execute("insert into nuncius.holders values (1)")
    for name, holder in (("gone", 1), ("here", 2), ("durable", None)):
        await connection.execute("select nuncius.subscribe('news', $1, 'latest', false, $2)", name, holder)
    assert (await return_leases(connection))["moved"] == 1
    rows = await connection.fetch("select subscriber_name from nuncius.list_subscriptions()")
    assert [row[0] for row in rows] == ["durable", "here"]


async def test_what_a_node_never_learned(connection: Connection) -> None:
    """Messages that were leased by a call whose answer was lost go back, uncounted; others stay leased."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"a", b"b", b"c"]))
    await lease_many(connection, Ask(jobs), holder=1, batch=7)
    await lease_many(connection, Ask(jobs), holder=2, batch=7)
    await lease_many(connection, Ask(jobs), holder=1, batch=8)
    reclaim = "select nuncius.reclaim_leases(1, $1, 3)"
    assert await connection.fetchval(reclaim, [7, 9]) == [jobs]
    assert await connection.fetchval(reclaim, [7, 9]) == []
    assert await held(connection) == [(2, 1), (1, 1)]
    (row,) = await lease_many(connection, Ask(jobs))
    assert (row["message"], row["attempts"]) == (b"a", 0)


async def test_steps_are_bounded(connection: Connection) -> None:
    """What is due goes back in steps, the longest waiting first, until nothing is left."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"%d" % n for n in range(5)]))
    ids = [row["message_id"] for row in await lease_many(connection, Ask(jobs, limit=5))]
    for each in ids:
        await release(connection, [each], "no", 0)
    assert [(await return_leases(connection, limit=2))["moved"] for _ in range(4)] == [2, 2, 1, 0]
    rows = await lease_many(connection, Ask(jobs, limit=5))
    assert [row["message"] for row in rows] == [b"0", b"1", b"2", b"3", b"4"]


async def test_one_node_at_a_time(connection: Connection, other: Connection) -> None:
    """While one node returns leases, another that tries is told so."""
    await other.execute("begin")
    await return_leases(other)
    assert (await return_leases(connection))["moved"] is None


async def test_a_long_transaction_holds_up_its_own_queue_only(
    connection: Connection, other: Connection
) -> None:
    """Somebody who puts into a queue in a long transaction keeps back what goes into that queue, however
    much it is, and nothing else: neither the call nor what is behind it."""
    jobs, more = await queue(connection), await queue(connection, "more")
    await put_many(connection, Run(jobs, [b"a", b"b", b"c"]), Run(more, [b"x"]))
    in_jobs = [row["message_id"] for row in await lease_many(connection, Ask(jobs, limit=3))]
    in_more = [row["message_id"] for row in await lease_many(connection, Ask(more))]
    await other.execute("begin")
    await put_many(other, Run(jobs, [b"late"]))
    assert await release(connection, in_jobs) == []
    await release(connection, in_more, "no", 0)
    assert dict(await return_leases(connection, limit=2)) == {"moved": 1, "queues": [more]}
    await other.execute("commit")
    assert dict(await return_leases(connection)) == {"moved": 3, "queues": [jobs]}
    rows = await lease_many(connection, Ask(jobs, limit=9))
    assert [(row["message"], row["attempts"]) for row in rows] == [
        (b"late", 0), (b"a", 0), (b"b", 0), (b"c", 0),
    ]  # fmt: skip


async def test_settled_in_a_long_transaction(connection: Connection, other: Connection) -> None:
    """While somebody settles, in a long transaction, a message that is due, the others go back without it."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"a", b"b"]))
    ids = [row["message_id"] for row in await lease_many(connection, Ask(jobs, limit=2))]
    await release(connection, ids, "no", 0)
    await other.execute("begin")
    assert await settle(other, ids[0]) == ids[:1]
    assert (await return_leases(connection))["moved"] == 1
    await other.execute("rollback")
    assert (await return_leases(connection))["moved"] == 1
    rows = await lease_many(connection, Ask(jobs, limit=2))
    assert [row["message"] for row in rows] == [b"b", b"a"]


async def test_a_dead_letter_for_a_locked_queue(connection: Connection, other: Connection) -> None:
    """A dead letter waits for the lock of its queue, and does not make its consumer wait."""
    jobs = await queue(connection)
    dead = await queue(connection, "dead/jobs")
    await put_many(connection, Run(jobs, [b"x"]))
    (row,) = await lease_many(connection, Ask(jobs))
    await connection.execute("update nuncius.leases set attempts = $1", MOST)
    await other.execute("begin")
    await put_many(other, Run(dead, [b"y"]))
    assert await release(connection, [row["message_id"]], "no", 0) == []
    assert (await return_leases(connection))["moved"] == 0
    await other.execute("rollback")
    assert dict(await return_leases(connection)) == {"moved": 1, "queues": [dead]}


async def test_counted_however_late_it_is_seen(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """A lease that began before a message came back, and waited, knows that it was delivered before."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"x"]))
    (first,) = await lease_many(connection, Ask(jobs))
    await release(connection, [first["message_id"]], "no", 0)
    await other.execute("begin")
    await take_many(other, Ask(jobs))  # has the lock that takers share
    leasing = asyncio.ensure_future(lease_many(connection, Ask(jobs)))
    await until_waiting(observer, connection.get_server_pid())
    assert (await return_leases(observer))["moved"] == 1
    await other.execute("commit")
    (row,) = await leasing
    assert (row["attempts"], row["origin"]) == (1, first["origin"])


async def test_ids_are_in_commit_order(
    connection: Connection, other: Connection, observer: Connection, connect: Connect
) -> None:
    """What goes back has its new id under the queue's lock: whoever remembers the last id misses nothing."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"x"]))
    (row,) = await lease_many(connection, Ask(jobs))
    await other.execute("begin")
    await release(other, [row["message_id"]])  # an id is given out, and not committed
    putting = asyncio.ensure_future(put_many(connection, Run(jobs, [b"y"])))
    await until_waiting(observer, connection.get_server_pid())
    assert await take_many(await connect(), Ask(jobs)) == []
    await other.execute("commit")
    await putting
    rows = await take_many(connection, Ask(jobs, limit=2))
    assert [row["message"] for row in rows] == [b"x", b"y"]


async def test_taken_without_acknowledgement(connection: Connection) -> None:
    """A message that came back can be taken for good; what was known of it is swept up."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"a", b"b"]))
    ids = [row["message_id"] for row in await lease_many(connection, Ask(jobs, limit=2))]
    await release(connection, ids, "no", 0)
    await return_leases(connection)
    assert [row["message"] for row in await take_many(connection, Ask(jobs))] == [b"a"]
    assert await connection.fetchval("select nuncius.tidy()") == 1
    (row,) = await lease_many(connection, Ask(jobs))
    assert row["attempts"] == 1


@pytest.mark.parametrize("delete", [False, True])
async def test_a_queue_that_is_emptied_or_deleted(connection: Connection, delete: bool) -> None:
    """A purge takes what waits for its next attempt, not what is in hand; deleting takes everything."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"a", b"b", b"c"]))
    rows = await lease_many(connection, Ask(jobs, limit=2))
    in_hand, failed = [row["message_id"] for row in rows]
    await release(connection, [failed], "no", 0)
    if delete:
        await connection.execute("select nuncius.delete_queue($1)", jobs)
    else:
        assert await connection.fetchval("select nuncius.purge_queues($1)", [jobs]) == 2
    assert (await return_leases(connection))["moved"] == 0
    assert await release(connection, [in_hand], "no", 0) == []
    assert (await return_leases(connection))["moved"] == (0 if delete else 1)
    assert await depth(connection, jobs) == (0 if delete else 1)


async def test_deleted_while_something_goes_back(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """Nothing goes back into a queue that is deleted at the same moment."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"x"]))
    (row,) = await lease_many(connection, Ask(jobs))
    await other.execute("begin")
    await release(other, [row["message_id"]])
    deleting = asyncio.ensure_future(connection.execute("select nuncius.delete_queue($1)", jobs))
    await until_waiting(observer, connection.get_server_pid())
    await other.execute("commit")
    await deleting
    assert await depth(connection, jobs) == 0
    assert await held(connection) == []


async def test_a_forgotten_node_is_remembered(connection: Connection) -> None:
    """What is held under a number that nobody knows any more comes back all the same, a little later."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"x"]))
    await lease_many(connection, Ask(jobs), holder=5)
    assert (await return_leases(connection))["moved"] == 0
    await connection.execute("select nuncius.tidy()")
    assert (await return_leases(connection))["moved"] == 1


async def test_a_very_stubborn_message(connection: Connection) -> None:
    """There is no number of attempts that the store cannot count."""
    dead = await queue(connection, "dead/jobs")
    await put_many(connection, Run(dead, [b"x"]))
    (row,) = await lease_many(connection, Ask(dead))
    await connection.execute("update nuncius.leases set attempts = 1000000")
    await release(connection, [row["message_id"]], "no", 0)
    await return_leases(connection)
    (row,) = await lease_many(connection, Ask(dead))
    assert row["attempts"] == 1_000_000
