"""Deliveries to subscribers who acknowledge, in SQL: what was handed over, what failed, and dead letters."""

import json
from typing import Any

from nuncius.store.driver import Connection
from store.publishing_sql import Send, bodies, publish_many, topic

MOST = 3


async def subscribe(connection: Connection, name: str = "sue", holder: int | None = None) -> int:
    subscription: int = await connection.fetchval(
        "select subscription_id from nuncius.subscribe('news', $1, 'earliest', false, $2)", name, holder
    )
    return subscription


async def partition(connection: Connection, number: int = 1) -> int:
    found: int = await connection.fetchval(
        "select partition_id from nuncius.partitions join nuncius.topics using (topic_id)"
        " where topic_name = 'news' and partition = $1",
        number,
    )
    return found


async def fail(
    connection: Connection, subscription: int, *offsets: int, reason: str = "no", most: int = MOST
) -> list[int]:
    where = await partition(connection)
    attempts: list[int] = await connection.fetchval(
        "select nuncius.fail_many($1, $2, $3, $4, 60, $5)",
        [subscription] * len(offsets),
        [where] * len(offsets),
        offsets,
        [reason] * len(offsets),
        most,
    )
    return attempts


async def failures(connection: Connection) -> list[tuple[int, int]]:
    """Offset and attempts of all failures."""
    rows = await connection.fetch("select entry_offset, attempts from nuncius.failures order by entry_offset")
    return [(row[0], row[1]) for row in rows]


async def confirm(connection: Connection, subscription: int, position: int) -> None:
    where = await partition(connection)
    await connection.execute("select nuncius.confirm_many($1, $2, $3)", [subscription], [where], [position])


async def listed(connection: Connection) -> list[dict[str, Any]]:
    return [dict(row) for row in await connection.fetch("select * from nuncius.list_failures()")]


async def test_attempts_are_counted(connection: Connection) -> None:
    """Every failure of an entry is counted for its subscriber alone, and says when it comes again."""
    await publish_many(connection, Send(await topic(connection), [b"0", b"1", b"2"]))
    sue, tom = await subscribe(connection), await subscribe(connection, "tom")
    assert await fail(connection, sue, 0, 2) == [1, 1]
    assert await fail(connection, sue, 2, reason="again no") == [2]
    assert await fail(connection, tom, 2) == [1]
    (row,) = await connection.fetch(
        "select attempts, reason, due_at - last_failure > interval '59 seconds' as later"
        " from nuncius.failures where subscription_id = $1 and entry_offset = 2",
        sue,
    )
    assert dict(row) == {"attempts": 2, "reason": "again no", "later": True}


async def test_dead_letters(connection: Connection) -> None:
    """After so many attempts an entry is published to the topic "dead/NAME", with its history in headers."""
    news = await topic(connection, partitions=2)
    await connection.execute("select nuncius.publish('news', 'x', 'key', '{\"a\": \"b\"}', null, null, 1)")
    sue = await subscribe(connection)
    assert [await fail(connection, sue, 0, reason=f"reason {n}") for n in range(MOST)] == [[1], [2], [-3]]
    assert await failures(connection) == []
    (letter,) = await connection.fetch("select * from nuncius.fetch('dead/news')")
    assert (letter["body"], letter["key"]) == (b"x", "key")
    headers = json.loads(letter["headers"])
    assert headers.pop("dead-last-failure").endswith("Z")
    assert headers == {
        "a": "b",
        "dead-destination": "/topic/news",
        "dead-message-id": f"t-{news}-1-0",
        "dead-subscriber": "sue",
        "dead-attempts": "3",
        "dead-reason": "reason 2",
    }


async def test_no_dead_letters_of_dead_letters(connection: Connection) -> None:
    """An entry of a topic for dead letters that fails too often is given up without another one."""
    await connection.execute("select nuncius.publish('dead/news', 'x')")
    subscription = await connection.fetchval(
        "select subscription_id from nuncius.subscribe('dead/news', 'sue', 'earliest')"
    )
    where = await connection.fetchval("select partition_id from nuncius.partitions")
    for expected in (1, 2, -3):
        (attempts,) = await connection.fetchval(
            "select nuncius.fail_many($1, $2, $3, $4, 60, $5)", [subscription], [where], [0], ["no"], MOST
        )
        assert attempts == expected
    assert await failures(connection) == []
    assert [row[0] for row in await connection.fetch("select topic_name from nuncius.topics")] == [
        "dead/news"
    ]


async def test_what_retention_has_passed(connection: Connection) -> None:
    """An entry that is gone, removed or only purged, is given up without a dead letter, and forgotten."""
    await publish_many(connection, Send(await topic(connection), [b"0", b"1"]))
    sue = await subscribe(connection)
    await fail(connection, sue, 0, 1)
    await connection.execute("select nuncius.purge_topic('news')")
    assert await fail(connection, sue, 0, most=2) == [-2]
    assert await connection.fetchval("select nuncius.collect()") == 2
    assert await fail(connection, sue, 1, most=2) == [-2]
    assert await failures(connection) == []
    assert await connection.fetchval("select count(*) from nuncius.topics") == 1


async def test_taken_at_last(connection: Connection) -> None:
    """Positions, failures, and entries that were taken after they failed are noted together."""
    await publish_many(connection, Send(await topic(connection), [b"%d" % n for n in range(5)]))
    sue = await subscribe(connection)
    where = await partition(connection)
    await fail(connection, sue, 0)
    attempts = await connection.fetchval(
        "select nuncius.acknowledge_many($1, $2, $3, $1, $2, $4, $5, $1, $2, $6, 60, 3)",
        [sue], [where], [4], [3], ["no"], [0],
    )  # fmt: skip
    assert attempts == [1]
    assert await failures(connection) == [(3, 1)]
    (place,) = await connection.fetch("select position from nuncius.positions_of($1)", [sue])
    assert place["position"] == 4


async def test_without_a_subscription(connection: Connection) -> None:
    """A failure for a subscription that has ended is given up, and nothing is left of it."""
    await publish_many(connection, Send(await topic(connection), [b"0"]))
    sue = await subscribe(connection)
    await connection.execute("select nuncius.unsubscribe('news', 'sue')")
    assert await fail(connection, sue, 0) == [-1]
    assert await failures(connection) == []


async def test_the_end_of_a_subscription(connection: Connection) -> None:
    """With a subscription, or its topic, all that was noted for it goes."""
    await publish_many(connection, Send(await topic(connection), [b"0", b"1"]))
    where = await partition(connection)
    for end in ("select nuncius.unsubscribe('news', 'sue')", "select nuncius.delete_topic('news')"):
        sue = await subscribe(connection)
        await fail(connection, sue, 0)
        await confirm(connection, sue, 1)
        await connection.execute("select nuncius.deliver_many($1, $2, $3)", [sue], [where], [2])
        await connection.execute(end)
        for table in ("subscriptions", "positions", "deliveries", "failures"):
            assert await connection.fetchval(f"select count(*) from nuncius.{table}") == 0, table


async def test_sweeping_up(connection: Connection) -> None:
    """Of deliveries the highest is kept; what was noted after a subscription had ended is swept up."""
    await topic(connection)
    sue = await subscribe(connection)
    where = await partition(connection)
    for to in (3, 5, 4, 5):
        await connection.execute("select nuncius.deliver_many($1, $2, $3)", [sue], [where], [to])
    await connection.execute("select nuncius.deliver_many($1, $2, $3)", [999], [where], [1])
    await connection.execute("insert into nuncius.failures values (999, $1, 0, 1, now(), now(), 'no')", where)
    assert await connection.fetchval("select nuncius.tidy()") == 4
    rows = await connection.fetch("select * from nuncius.deliveries")
    assert [tuple(row) for row in rows] == [(sue, where, 5)]
    assert await failures(connection) == []


async def test_retention_waits_for_what_failed(connection: Connection) -> None:
    """Entries that a subscriber has passed but could not take stay until they are taken or given up."""
    await publish_many(connection, Send(await topic(connection), [b"%d" % n for n in range(5)]))
    await connection.execute("select nuncius.set_retention('news', 'subscribers')")
    sue = await subscribe(connection)
    await fail(connection, sue, 1, 3)
    await confirm(connection, sue, 5)
    await connection.execute("select nuncius.collect()")
    assert await bodies(connection) == [b"1", b"2", b"3", b"4"]
    where = await partition(connection)
    await connection.execute("select nuncius.recover_many($1, $2, $3)", [sue], [where], [1])
    await connection.execute("select nuncius.collect()")
    assert await bodies(connection) == [b"3", b"4"]
    assert await fail(connection, sue, 3, most=1) == [-2]
    await connection.execute("select nuncius.collect()")
    assert await bodies(connection) == []
    assert await bodies(connection, "dead/news") == [b"3"]


async def test_lists(connection: Connection) -> None:
    """Failures of topics and queues are listed together, the latest first, and counted by destination."""
    news = await topic(connection)
    await publish_many(connection, Send(news, [b"0", b"1"]))
    sue = await subscribe(connection)
    await connection.execute("select nuncius.create_queue('jobs')")
    await connection.execute("select nuncius.put_messages(array[1], 0, 0, 0, 5, 'x')")
    await connection.execute("select nuncius.put_messages(array[1], 0, 0, 0, 5, 'y')")
    rows = await connection.fetch(
        "select * from nuncius.lease_many(1, 1, $1, $2, $2, $2, $3, $4)", [1], [0], [1], [2]
    )
    ids = [row["message_id"] for row in rows]
    await fail(connection, sue, 0, reason="first")
    await connection.execute("select nuncius.release_many($1, $2, 60, 10)", ids[:1], ["second"])
    await connection.execute("select nuncius.release_many($1, $2, 0, 10)", ids[1:], ["third"])
    await connection.execute("select nuncius.return_leases(0, 10, false)")
    await fail(connection, sue, 1, reason="fourth")
    found = [
        (row["destination"], row["subscriber"], row["partition"], row["id"], row["attempts"], row["reason"])
        for row in await listed(connection)
    ]
    assert found == [
        ("/topic/news", "sue", 1, 1, 1, "fourth"),
        ("/queue/jobs", None, None, ids[1], 1, "third"),
        ("/queue/jobs", None, None, ids[0], 1, "second"),
        ("/topic/news", "sue", 1, 0, 1, "first"),
    ]
    counted = await connection.fetch("select destination, failures, reason from nuncius.count_failures()")
    assert [tuple(row) for row in counted] == [("/topic/news", 2, "fourth"), ("/queue/jobs", 2, "third")]


async def test_who_lives_by_a_node(connection: Connection) -> None:
    """A subscription that would go with one node is taken over by another; asked for as durable it becomes
    so, and stays so; and a node ends only what is still its own."""
    await topic(connection)
    sue = await subscribe(connection, holder=1)

    async def holder() -> int | None:
        found: int | None = await connection.fetchval("select holder from nuncius.subscriptions")
        return found

    assert await holder() == 1
    assert await subscribe(connection, holder=2) == sue
    assert await holder() == 2
    assert await connection.fetchval("select nuncius.end_subscriptions($1, 1)", [sue]) == 0
    assert await subscribe(connection) == sue
    assert await holder() is None
    assert await subscribe(connection, holder=2) == sue
    assert await holder() is None
    assert await connection.fetchval("select nuncius.end_subscriptions($1, 2)", [sue]) == 0
    assert await connection.fetchval("select nuncius.end_subscriptions($1)", [sue]) == 1
