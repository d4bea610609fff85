"""Publishing in turn, and getting by ids that are a subscriber's own."""

import asyncio
from dataclasses import dataclass

import pytest

from fix_connections import Connect
from nuncius.store.driver import Connection
from racing import until_waiting

PLENTY = 1 << 20
STORED, OTHER_COUNT, CHANGED, BUSY = 0, 1, -2, -3
HERE, NONE_THERE, TOO_MUCH, NOT_SUBSCRIBED = 0, 1, 2, -2


@dataclass(frozen=True, slots=True)
class Put:
    topic: str
    publisher: str
    count: int
    body: bytes = b"text"


async def put(connection: Connection, *puts: Put, wait: bool = True) -> list[tuple[int, int | None, int]]:
    """Code, registered count if that is the answer, and number of subscribers for each."""
    row = await connection.fetchrow(
        "select codes, registered, subscribers from nuncius.publish_in_turn($1, $2, $3, $4, $5)",
        [each.topic for each in puts],
        [each.publisher for each in puts],
        [each.count for each in puts],
        [each.body for each in puts],
        wait,
    )
    assert row is not None
    return [
        (code, registered if code == OTHER_COUNT else None, subscribers)
        for code, registered, subscribers in zip(*row.values(), strict=True)
    ]


async def get(
    connection: Connection, *asked: tuple[str, str, int], most: int = PLENTY
) -> list[tuple[int, int, bytes | None]]:
    """Code, latest id and body for each subscriber, topic and id."""
    row = await connection.fetchrow(
        "select codes, latest, bodies from nuncius.get_many($1, $2, $3, $4)",
        [topic for _, topic, _ in asked],
        [subscriber for subscriber, _, _ in asked],
        [entry_id for _, _, entry_id in asked],
        most,
    )
    assert row is not None
    return list(zip(*row.values(), strict=True))


async def subscribe(connection: Connection, subscriber: str, topic: str) -> tuple[bool, int]:
    row = await connection.fetchrow("select * from nuncius.subscribe_in_sequence($1, $2)", topic, subscriber)
    assert row is not None
    return row["created"], row["last_id"]


async def publish(connection: Connection, topic: str, *bodies: str, partition: int | None = None) -> None:
    for body in bodies:
        await connection.fetch(
            "select nuncius.publish($1, $2::text, partition => $3)", topic, body, partition
        )


async def positions(connection: Connection, subscriber: str) -> list[int]:
    """Where a subscriber stands, partition by partition."""
    rows = await connection.fetch(
        "select w.position from nuncius.subscriptions s,"
        " lateral nuncius.positions_of(array[s.subscription_id]) w where s.subscriber_name = $1",
        subscriber,
    )
    return [row["position"] for row in rows]


async def runs(connection: Connection) -> list[tuple[int, int, int, int]]:
    rows = await connection.fetch(
        "select q.first_id, p.partition, q.first_offset, q.entries from nuncius.sequences q"
        " join nuncius.partitions p using (partition_id) order by q.first_id"
    )
    return [tuple(row) for row in rows]


async def read_all(connection: Connection, subscriber: str, topic: str, first: int) -> list[str]:
    """Asks for one id after the other until there is none."""
    seen: list[str] = []
    while True:
        ((code, latest, body),) = await get(connection, (subscriber, topic, first + len(seen)))
        if code != HERE:
            assert (code, latest) == (NONE_THERE, first + len(seen) - 1)
            return seen
        assert body is not None
        seen.append(body.decode())


# Publishing in turn


async def test_counts_decide(connection: Connection) -> None:
    """A message is stored only if its count is the next one; else the answer is the count there is."""
    assert await put(connection, Put("news", "ann", 1)) == [(STORED, None, 0)]
    assert await put(connection, Put("news", "ann", 1)) == [(OTHER_COUNT, 1, 0)]
    assert await put(connection, Put("news", "ann", 3)) == [(OTHER_COUNT, 1, 0)]
    assert await put(connection, Put("news", "ann", 0)) == [(OTHER_COUNT, 1, 0)]
    assert await put(connection, Put("news", "ann", 2)) == [(STORED, None, 0)]
    assert await put(connection, Put("news", "bob", 2)) == [(OTHER_COUNT, 0, 0)]
    assert await put(connection, Put("news", "bob", 0)) == [(OTHER_COUNT, 0, 0)]
    assert await put(connection, Put("other", "ann", 1)) == [(STORED, None, 0)]
    assert await connection.fetchval("select nuncius.last_count('ann', 'topic', 'news')") == 2


async def test_counts_of_one_batch(connection: Connection) -> None:
    """Several messages of one publisher in one call are taken one after the other."""
    puts = [Put("news", "ann", n, f"{n}".encode()) for n in (2, 1, 2, 2, 4, 3)]
    assert await put(connection, *puts, Put("news", "bob", 3)) == [
        (OTHER_COUNT, 0, 0),
        (STORED, None, 0),
        (STORED, None, 0),
        (OTHER_COUNT, 2, 0),
        (OTHER_COUNT, 2, 0),
        (STORED, None, 0),
        (OTHER_COUNT, 0, 0),
    ]
    rows = await connection.fetch("select body from nuncius.fetch('news')")
    assert [row["body"] for row in rows] == [b"1", b"2", b"3"]


async def test_an_absurd_count(connection: Connection) -> None:
    """The largest number there is is a count like any other that is not due."""
    assert await put(connection, Put("news", "ann", 2**63 - 1)) == [(OTHER_COUNT, 0, 0)]


async def test_topics_made_here(connection: Connection) -> None:
    """A topic that is made by a put or a subscription keeps entries until all subscribers have them; one
    that is there stays what it is."""
    await connection.fetch("select nuncius.create_topic('kept')")
    await put(connection, Put("kept", "ann", 1), Put("put", "ann", 1), Put("put", "bob", 1))
    await subscribe(connection, "sub", "kept")
    await subscribe(connection, "sub", "subscribed")
    rows = await connection.fetch("select topic_name, retention from nuncius.topics order by 1")
    assert [tuple(row) for row in rows] == [
        ("kept", "forever"),
        ("put", "subscribers"),
        ("subscribed", "subscribers"),
    ]


async def test_how_many_subscribers(connection: Connection) -> None:
    """The answer to a put is the number of the topic's subscribers, through whichever door they came."""
    await subscribe(connection, "ann", "news")
    await connection.fetch("select nuncius.subscribe('news', 'spark')")
    await subscribe(connection, "ann", "other")
    found = await put(connection, Put("news", "p", 1), Put("other", "p", 1), Put("nobody", "p", 1))
    assert [number for _, _, number in found] == [2, 1, 0]


async def test_a_publisher_keeps_to_a_partition(connection: Connection) -> None:
    """In a topic with several partitions all messages of one publisher go to the same."""
    await connection.fetch("select nuncius.create_topic('wide', 4)")
    await put(connection, *[Put("wide", "ann", n) for n in (1, 2, 3)])
    await put(connection, Put("wide", "ann", 4))
    where = await connection.fetch("select distinct partition_id from nuncius.entries")
    assert len(where) == 1


async def test_a_topic_deleted_while_waiting(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """Who waits for a topic that is deleted meanwhile has to try again; nothing is stored."""
    await put(connection, Put("news", "ann", 1))
    transaction = connection.transaction()
    await transaction.start()
    await connection.fetch("select nuncius.delete_topic('news')")
    waiting = asyncio.ensure_future(put(other, Put("news", "ann", 2)))
    await until_waiting(observer, other.get_server_pid())
    await transaction.commit()
    assert [code for code, _, _ in await waiting] == [CHANGED]
    assert await put(other, Put("news", "ann", 1)) == [(STORED, None, 0)]


async def test_counts_of_both_kinds(connection: Connection) -> None:
    """A publisher has one count in a topic, whether it publishes in turn or by publish_many."""
    await connection.fetch("select nuncius.publish('news', 'a'::text, publisher => 'ann', count => 7)")
    assert await put(connection, Put("news", "ann", 7)) == [(OTHER_COUNT, 7, 0)]
    assert await put(connection, Put("news", "ann", 8)) == [(STORED, None, 0)]
    again = "select nuncius.publish('news', 'b'::text, publisher => 'ann', count => 8)"
    assert await connection.fetchval(again) is None


async def test_who_does_not_wait(connection: Connection, other: Connection) -> None:
    """While somebody holds a topic for long, a caller that does not wait is told that it is busy."""
    await put(connection, Put("news", "ann", 1))
    await other.execute("set lock_timeout = '20ms'")
    async with connection.transaction():
        await put(connection, Put("news", "ann", 2))
        codes = [
            code for code, _, _ in await put(other, Put("news", "bob", 1), Put("free", "bob", 1), wait=False)
        ]
        assert codes == [BUSY, STORED]


async def test_two_that_make_the_same_topic(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """Two publishers that are first in a topic at the same time both get in."""
    transaction = connection.transaction()
    await transaction.start()
    await put(connection, Put("news", "ann", 1))
    second = asyncio.ensure_future(put(other, Put("news", "bob", 1)))
    await until_waiting(observer, other.get_server_pid())
    await transaction.commit()
    assert await second == [(STORED, None, 0)]


# Ids that are offsets


async def test_ids_of_a_new_subscriber(connection: Connection) -> None:
    """An empty topic's latest id is -1; a subscriber begins after the latest."""
    assert await subscribe(connection, "ann", "news") == (True, -1)
    await publish(connection, "news", "a", "b")
    assert await subscribe(connection, "bob", "news") == (True, 1)
    assert await get(connection, ("ann", "news", 0)) == [(HERE, 1, b"a")]
    assert await get(connection, ("bob", "news", 2)) == [(NONE_THERE, 1, None)]
    await publish(connection, "news", "c")
    assert await get(connection, ("bob", "news", 2)) == [(HERE, 2, b"c")]


async def test_subscribing_again(connection: Connection) -> None:
    """Who is subscribed keeps its place, and is told the id that it has confirmed last."""
    await subscribe(connection, "ann", "news")
    await publish(connection, "news", "a", "b", "c")
    await get(connection, ("ann", "news", 2))
    assert await subscribe(connection, "ann", "news") == (False, 1)


async def test_not_subscribed(connection: Connection) -> None:
    """Somebody else's topic, and a topic that does not exist, have nothing for this subscriber."""
    await subscribe(connection, "ann", "news")
    found = await get(connection, ("bob", "news", 0), ("ann", "other", 0), ("ann", "news", 0))
    assert [code for code, _, _ in found] == [NOT_SUBSCRIBED, NOT_SUBSCRIBED, NONE_THERE]
    assert await connection.fetchval("select count(*) from nuncius.topics") == 1


async def test_asking_confirms(connection: Connection) -> None:
    """Asking for an id confirms everything below it, also if there is no such entry yet; an id that is
    further away confirms nothing."""
    await subscribe(connection, "ann", "news")
    await publish(connection, "news", "a", "b", "c")
    for entry_id, position in ((1, 1), (1, 1), (0, 1), (5, 1), (2**63 - 1, 1), (3, 3)):
        await get(connection, ("ann", "news", entry_id))
        assert await positions(connection, "ann") == [position]


async def test_the_same_id_again(connection: Connection) -> None:
    """The same id gets the same entry, and so does one from before, as long as the entry is there."""
    await subscribe(connection, "ann", "news")
    await subscribe(connection, "bob", "news")
    await publish(connection, "news", "a", "b", "c")
    asked = [("ann", "news", n) for n in (0, 0, 2, 1, 2)]
    bodies = [body for each in asked for _, _, body in await get(connection, each)]
    assert bodies == [b"a", b"a", b"c", b"b", b"c"]
    assert await connection.fetchval("select nuncius.collect()") == 0
    assert await get(connection, ("bob", "news", 2)) == [(HERE, 2, b"c")]
    assert await connection.fetchval("select nuncius.collect()") == 2
    assert await get(connection, ("ann", "news", 0)) == [(NONE_THERE, 2, None)]


async def test_several_at_once(connection: Connection) -> None:
    """Requests of one subscriber and of several are answered each for itself, in one call."""
    await subscribe(connection, "ann", "news")
    await subscribe(connection, "bob", "news")
    await publish(connection, "news", "a", "b")
    asked = [("ann", "news", 0), ("bob", "news", 1), ("ann", "news", 1), ("ann", "news", 2)]
    assert await get(connection, *asked) == [
        (HERE, 1, b"a"),
        (HERE, 1, b"b"),
        (HERE, 1, b"b"),
        (NONE_THERE, 1, None),
    ]
    assert await positions(connection, "ann") == [2]
    assert await positions(connection, "bob") == [1]


async def test_too_much_at_once(connection: Connection) -> None:
    """What does not fit into an answer has to be asked for again; the first always fits, and what is not
    answered is not confirmed."""
    await subscribe(connection, "ann", "news")
    await subscribe(connection, "bob", "news")
    await publish(connection, "news", "x" * 100, "y" * 100, "z")
    asked = [("ann", "news", 0), ("bob", "news", 1), ("ann", "news", 3)]
    codes = [code for code, _, _ in await get(connection, *asked, most=50)]
    assert codes == [HERE, TOO_MUCH, NONE_THERE]
    assert await positions(connection, "bob") == [0]
    assert [code for code, _, _ in await get(connection, *asked, most=200)] == [HERE, HERE, NONE_THERE]


async def test_a_collector_in_between(connection: Connection) -> None:
    """What all have is collected and ids go on; what one has not asked beyond stays."""
    await subscribe(connection, "ann", "news")
    await put(connection, *[Put("news", "p", n, f"{n}".encode()) for n in range(1, 6)])
    assert await read_all(connection, "ann", "news", 0) == ["1", "2", "3", "4", "5"]
    assert await connection.fetchval("select nuncius.collect()") == 5
    await put(connection, Put("news", "p", 6, b"6"))
    assert await read_all(connection, "ann", "news", 5) == ["6"]


async def test_unsubscribing(connection: Connection) -> None:
    """Unsubscribing drops what was pending; subscribing again starts after the latest."""
    await subscribe(connection, "ann", "news")
    await publish(connection, "news", "a", "b")
    assert await connection.fetchval("select nuncius.unsubscribe('news', 'ann')")
    await connection.fetchval("select nuncius.collect()")
    assert await get(connection, ("ann", "news", 0)) == [(NOT_SUBSCRIBED, 1, None)]
    assert await subscribe(connection, "ann", "news") == (True, 1)


# Ids of several partitions


async def wide(connection: Connection, partitions: int = 3) -> None:
    await connection.fetch("select nuncius.create_topic('wide', $1)", partitions)
    await connection.fetch("select nuncius.set_retention('wide', 'subscribers')")


async def test_several_partitions(connection: Connection) -> None:
    """In a topic with several partitions ids are dense; the same id is always the same entry."""
    await wide(connection)
    assert await subscribe(connection, "ann", "wide") == (True, -1)
    await publish(connection, "wide", "c1", "c2", partition=3)
    await publish(connection, "wide", "a1", partition=1)
    assert await get(connection, ("ann", "wide", 0)) == [(HERE, 2, b"a1")]
    await publish(connection, "wide", "a2", partition=1)
    await publish(connection, "wide", "b1", partition=2)
    first = await read_all(connection, "ann", "wide", 0)
    assert sorted(first) == ["a1", "a2", "b1", "c1", "c2"]
    assert await read_all(connection, "ann", "wide", 0) == first
    assert [first[n] for n in range(5) if first[n][0] == "c"] == ["c1", "c2"]


async def test_a_subscriber_who_comes_later(connection: Connection) -> None:
    """A new subscriber sees nothing of what was there, in no partition."""
    await wide(connection)
    await publish(connection, "wide", "a", "b", partition=1)
    await publish(connection, "wide", "c", partition=2)
    assert await subscribe(connection, "ann", "wide") == (True, 2)
    assert await get(connection, ("ann", "wide", 3)) == [(NONE_THERE, 2, None)]
    await publish(connection, "wide", "d", partition=2)
    await publish(connection, "wide", "e", partition=1)
    assert await read_all(connection, "ann", "wide", 3) == ["e", "d"]
    assert await subscribe(connection, "ann", "wide") == (False, 4)


@pytest.mark.parametrize("first", [1, 3])
async def test_a_subscriber_who_comes_back(connection: Connection, first: int) -> None:
    """Who unsubscribes and subscribes again never gets another entry for an id that it had before, also if
    the topic has more partitions now."""
    await wide(connection, first)
    await subscribe(connection, "ann", "wide")
    await put(connection, *[Put("wide", f"p{n}", 1) for n in range(6)])
    assert len(await read_all(connection, "ann", "wide", 0)) == 6
    await connection.fetch("select nuncius.unsubscribe('wide', 'ann')")
    await connection.fetch("select nuncius.grow_topic('wide', 3)")
    await put(connection, *[Put("wide", f"p{n}", 2, b"missed") for n in range(6)])
    await connection.fetch("select nuncius.collect()")
    assert await subscribe(connection, "ann", "wide") == (True, 11)
    assert await get(connection, ("ann", "wide", 11)) == [(NONE_THERE, 11, None)]
    assert await get(connection, ("ann", "wide", 0)) == [(NONE_THERE, 11, None)]
    await put(connection, *[Put("wide", f"p{n}", 3, b"new") for n in range(6)])
    assert await read_all(connection, "ann", "wide", 12) == ["new"] * 6
    assert await subscribe(connection, "ann", "wide") == (False, 17)


async def test_what_comes_while_we_look(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """An entry that is published while an answer is made up is in it or is not: who is told that there is no
    such id is not told of a later one, which would make it pass over this one."""
    await wide(connection, 2)
    await subscribe(connection, "ann", "wide")
    await connection.execute(
        "create function stop() returns trigger language plpgsql as"
        " 'begin perform pg_advisory_xact_lock(1); return null; end';"
        "create trigger stop after delete on nuncius.sequences for each statement execute function stop()"
    )
    await connection.fetch("select pg_advisory_lock(1)")
    asking = asyncio.ensure_future(get(other, ("ann", "wide", 0)))
    await until_waiting(observer, other.get_server_pid())
    await publish(connection, "wide", "a", partition=2)
    await connection.fetch("select pg_advisory_unlock(1)")
    assert await asking == [(NONE_THERE, -1, None)]
    assert await get(other, ("ann", "wide", 0)) == [(HERE, 0, b"a")]


async def test_confirming_in_several_partitions(connection: Connection) -> None:
    """An id confirms just what stands before it, in each partition, so that retention keeps the rest."""
    await wide(connection)
    await subscribe(connection, "ann", "wide")
    for partition in (1, 2, 3):
        await publish(connection, "wide", "x", "y", partition=partition)
    for entry_id, places in ((0, [0, 0, 0]), (3, [2, 1, 0]), (2, [2, 1, 0]), (9, [2, 1, 0]), (6, [2, 2, 2])):
        await get(connection, ("ann", "wide", entry_id))
        assert await positions(connection, "ann") == places, entry_id
    assert await subscribe(connection, "ann", "wide") == (False, 5)


async def test_where_a_subscriber_stands_in_several_partitions(connection: Connection) -> None:
    """Who asks to be subscribed again is told the last id it has confirmed."""
    await wide(connection)
    await subscribe(connection, "ann", "wide")
    await publish(connection, "wide", "a", "b", partition=2)
    await publish(connection, "wide", "c", "d", partition=1)
    for entry_id in range(5):
        await get(connection, ("ann", "wide", entry_id))
        assert await subscribe(connection, "ann", "wide") == (False, entry_id - 1)


async def test_runs_are_forgotten(connection: Connection) -> None:
    """Runs whose entries are collected go when the next are written; numbering goes on."""
    await wide(connection, 2)
    await subscribe(connection, "ann", "wide")
    for n in range(6):
        await publish(connection, "wide", f"{n}", partition=1 + n % 2)
        assert await read_all(connection, "ann", "wide", n) == [f"{n}"]
        await connection.fetchval("select nuncius.collect()")
    assert len(await runs(connection)) <= 2
    assert await get(connection, ("ann", "wide", 0)) == [(NONE_THERE, 5, None)]


async def test_an_id_whose_run_is_forgotten(connection: Connection) -> None:
    """An older id whose entry was collected is gone; it is never taken for a neighbour's."""
    await wide(connection, 2)
    await subscribe(connection, "ann", "wide")
    await publish(connection, "wide", "b1", partition=2)
    await subscribe(connection, "slow", "wide")
    await publish(connection, "wide", "a1", partition=1)
    assert await read_all(connection, "ann", "wide", 0) == ["a1", "b1"]
    await publish(connection, "wide", "a2", partition=1)
    assert await read_all(connection, "ann", "wide", 2) == ["a2"]
    assert await connection.fetchval("select nuncius.collect()") == 1
    await publish(connection, "wide", "a3", partition=1)
    assert await read_all(connection, "ann", "wide", 3) == ["a3"]
    assert await get(connection, ("ann", "wide", 1)) == [(NONE_THERE, 3, None)]
    assert await read_all(connection, "ann", "wide", 2) == ["a2", "a3"]


async def test_an_id_whose_run_is_forgotten_and_nothing_follows(connection: Connection) -> None:
    """Asking for such an id changes no other one, also where the run before it is followed by nothing."""
    await wide(connection, 2)
    await subscribe(connection, "ann", "wide")
    await publish(connection, "wide", "b1", "b2", partition=2)
    await subscribe(connection, "slow", "wide")
    await publish(connection, "wide", "a1", partition=1)
    assert await read_all(connection, "ann", "wide", 0) == ["a1", "b1", "b2"]
    assert await connection.fetchval("select nuncius.collect()") == 2
    await publish(connection, "wide", "b3", partition=2)
    assert await read_all(connection, "ann", "wide", 3) == ["b3"]
    for forgotten in (1, 2):
        assert await get(connection, ("ann", "wide", forgotten)) == [(NONE_THERE, 3, None)]
    assert await read_all(connection, "ann", "wide", 3) == ["b3"]


async def test_a_topic_that_grows(connection: Connection) -> None:
    """A topic that gets more partitions goes on with the next id, and what was pending keeps its ids."""
    await subscribe(connection, "ann", "news")
    await publish(connection, "news", "a", "b", "c")
    await get(connection, ("ann", "news", 1))
    await connection.execute(
        "update nuncius.topics set partition_count = 2;"
        "insert into nuncius.partitions (topic_id, partition) select topic_id, 2 from nuncius.topics"
    )
    await publish(connection, "news", "d", partition=2)
    await publish(connection, "news", "e", partition=1)
    assert await subscribe(connection, "ann", "news") == (False, 0)
    assert await read_all(connection, "ann", "news", 1) == ["b", "c", "e", "d"]


async def test_entries_that_are_gone(connection: Connection) -> None:
    """Where retention has removed what a subscriber never had, its next id is the next entry there is."""
    await connection.fetch("select nuncius.create_topic('news')")
    await subscribe(connection, "ann", "news")
    await publish(connection, "news", "a", "b", "c", "d")
    assert await get(connection, ("ann", "news", 1)) == [(HERE, 3, b"b")]
    await connection.fetch("select nuncius.purge_topic('news')")
    await publish(connection, "news", "e", "f")
    assert await get(connection, ("ann", "news", 0)) == [(NONE_THERE, 5, None)]
    assert await read_all(connection, "ann", "news", 1) == ["e", "f"]
    assert await runs(connection) == [(1, 1, 4, 2)]
    assert await get(connection, ("ann", "news", 0)) == [(NONE_THERE, 2, None)]
    await connection.fetch("select nuncius.purge_topic('news')")
    await publish(connection, "news", "g")
    assert await read_all(connection, "ann", "news", 3) == ["g"]


async def test_gone_from_the_beginning(connection: Connection) -> None:
    """A subscription from another door that begins before what is there begins with what is there."""
    await publish(connection, "news", "a", "b")
    await connection.fetch("select nuncius.subscribe('news', 'ann', 'earliest')")
    await connection.fetch("select nuncius.purge_topic('news')")
    await publish(connection, "news", "c")
    assert await subscribe(connection, "ann", "news") == (False, -1)
    assert await read_all(connection, "ann", "news", 0) == ["c"]


async def test_gone_in_several_partitions(connection: Connection) -> None:
    """The same where there are several partitions, and ids were given out already."""
    await wide(connection, 2)
    await subscribe(connection, "ann", "wide")
    await publish(connection, "wide", "a1", "a2", "a3", partition=1)
    await publish(connection, "wide", "b1", "b2", partition=2)
    assert await get(connection, ("ann", "wide", 1)) == [(HERE, 4, b"a2")]
    await connection.fetch("update nuncius.partitions set first_offset = 3 where partition = 1")
    assert await get(connection, ("ann", "wide", 1)) == [(HERE, 2, b"b1")]
    assert await read_all(connection, "ann", "wide", 1) == ["b1", "b2"]


async def test_an_id_far_away_after_a_purge(connection: Connection) -> None:
    """Who asks for an id that nothing has yet says nothing of those before, so that what was removed before
    it was read does not hold up what came since."""
    await wide(connection, 2)
    await subscribe(connection, "ann", "wide")
    await publish(connection, "wide", "a1", "a2", partition=1)
    await publish(connection, "wide", "b1", "b2", partition=2)
    assert await get(connection, ("ann", "wide", 0)) == [(HERE, 3, b"a1")]
    assert await get(connection, ("ann", "wide", 99)) == [(NONE_THERE, 3, None)]
    await connection.fetch("select nuncius.purge_topic('wide')")
    await publish(connection, "wide", "a3", partition=1)
    assert await get(connection, ("ann", "wide", 99)) == [(NONE_THERE, 4, None)]
    assert await read_all(connection, "ann", "wide", 1) == ["a3"]


async def test_another_door_has_read_on(connection: Connection) -> None:
    """What the same subscriber confirmed through another door does not come again."""
    await wide(connection, 2)
    await subscribe(connection, "ann", "wide")
    await publish(connection, "wide", "a1", "a2", partition=2)
    await connection.fetch("select nuncius.confirm('wide', 'ann', 1, 2)")
    assert await read_all(connection, "ann", "wide", 0) == ["a2"]


async def test_two_nodes_give_the_same_ids(
    connection: Connection, connect: Connect, observer: Connection
) -> None:
    """Two nodes that are asked for the next id at the same time give it to the same entry."""
    await wide(connection, 2)
    await subscribe(connection, "ann", "wide")
    await publish(connection, "wide", "a", partition=1)
    await publish(connection, "wide", "b", partition=2)
    other = await connect()
    transaction = connection.transaction()
    await transaction.start()
    mine = await get(connection, ("ann", "wide", 1))
    theirs = asyncio.ensure_future(get(other, ("ann", "wide", 1)))
    await until_waiting(observer, other.get_server_pid())
    await transaction.commit()
    assert await theirs == mine == [(HERE, 1, b"b")]


async def test_too_much_in_several_partitions(connection: Connection) -> None:
    """The limit on an answer holds for these ids too."""
    await wide(connection, 2)
    for subscriber in ("ann", "bob", "eve"):
        await subscribe(connection, subscriber, "wide")
    await publish(connection, "wide", "x" * 100, partition=2)
    asked = [(subscriber, "wide", 0) for subscriber in ("ann", "bob", "eve")]
    codes = [code for code, _, _ in await get(connection, *asked, most=150)]
    assert codes == [HERE, HERE, TOO_MUCH]


@pytest.mark.parametrize("partitions", [1, 2])
async def test_unsubscribed_while_asking(
    connection: Connection, other: Connection, observer: Connection, partitions: int
) -> None:
    """A subscription that ends leaves no ids behind."""
    await wide(connection, partitions)
    await subscribe(connection, "ann", "wide")
    await publish(connection, "wide", "a", "b", partition=partitions)
    await get(connection, ("ann", "wide", 0))
    if partitions == 2:
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetch("select nuncius.unsubscribe('wide', 'ann')")
        asking = asyncio.ensure_future(get(other, ("ann", "wide", 1)))
        await until_waiting(observer, other.get_server_pid())
        await transaction.commit()
        assert [code for code, _, _ in await asking] == [NOT_SUBSCRIBED]
    else:
        await connection.fetch("select nuncius.unsubscribe('wide', 'ann')")
    assert await runs(connection) == []
