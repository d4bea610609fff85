"""Publishing in SQL: offsets are dense and in commit order, a publisher's count is stored once."""

import asyncio
from dataclasses import replace

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fix_connections import Connect
from nuncius.store.calls.publishing import partition_of
from nuncius.store.driver import Connection
from racing import until_waiting
from store.publishing_sql import Send, bodies, publish_many, publisher, topic

ALL_BEFORE, NO_TOPIC, BUSY, OTHER_LAYOUT = -1, -2, -3, -4
LEVELS = ["repeatable read", "serializable"]


async def test_offsets_are_dense_from_zero(connection: Connection) -> None:
    """The entries of a partition get the offsets 0, 1, 2 and so on, over all calls."""
    news = await topic(connection)
    assert await publish_many(connection, Send(news, [b"a", b"b"])) == ([0], [0])
    assert await publish_many(connection, Send(news, [b"c"]), Send(news, [b"d"])) == ([2, 3], [0, 0])
    assert await bodies(connection) == [b"a", b"b", b"c", b"d"]


async def test_partitions_count_for_themselves(connection: Connection) -> None:
    """Every partition has offsets of its own; runs come back in the order given."""
    news = await topic(connection, partitions=3)
    outcome = await publish_many(
        connection,
        Send(news, [b"a", b"b", b"c"], [3, 1, 3]),
        Send(news, [b"d", b"e"], [1, 2]),
    )
    assert outcome == ([0, 0, 1, 0], [0, 0, 0, 0])
    assert await bodies(connection, partition=1) == [b"b", b"d"]
    assert await bodies(connection, partition=2) == [b"e"]
    assert await bodies(connection, partition=3) == [b"a", b"c"]


async def test_several_topics_in_one_call(connection: Connection) -> None:
    """One call may publish to many topics."""
    first, second = await topic(connection, "first"), await topic(connection, "second")
    sends = [Send(second, [b"s"]), Send(first, [b"f"]), Send(second, [b"t"])]
    assert await publish_many(connection, *sends) == ([0, 0, 1], [0, 0, 0])
    assert await bodies(connection, "second") == [b"s", b"t"]


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
async def test_second_publisher_waits_for_the_first(
    connection: Connection, other: Connection, observer: Connection, outcome: str
) -> None:
    """Who publishes later gets the later offset: it waits until the first commits or rolls back."""
    news = await topic(connection)
    await connection.execute("begin")
    assert (await publish_many(connection, Send(news, [b"first"]))).bases == [0]
    waiting = asyncio.ensure_future(publish_many(other, Send(news, [b"second"])))
    await until_waiting(observer, other.get_server_pid())
    assert await bodies(observer) == []
    await connection.execute(outcome)
    committed = outcome == "commit"
    assert (await waiting).bases == [1 if committed else 0]
    assert await bodies(observer) == ([b"first"] if committed else []) + [b"second"]


async def test_other_partitions_do_not_wait(connection: Connection, other: Connection) -> None:
    """A transaction that is open in one partition does not hold up another."""
    news = await topic(connection, partitions=2)
    await connection.execute("begin")
    await publish_many(connection, Send(news, [b"held"], 1))
    assert (await publish_many(other, Send(news, [b"free"], 2))).bases == [0]
    await connection.execute("rollback")


async def test_transactions_that_commit_in_another_order(
    connect: Connect, connection: Connection, observer: Connection
) -> None:
    """However transactions overlap and end, nobody ever sees a gap."""
    news = await topic(connection, partitions=2)
    workers = [await connect() for _ in range(4)]
    for worker in workers:
        await worker.execute("begin")
    await publish_many(workers[0], Send(news, [b"0"], 1))
    await publish_many(workers[1], Send(news, [b"1"], 2))
    third = asyncio.ensure_future(publish_many(workers[2], Send(news, [b"2", b"2"], [1, 2])))
    await until_waiting(observer, workers[2].get_server_pid())
    fourth = asyncio.ensure_future(publish_many(workers[3], Send(news, [b"3"], 2)))
    await until_waiting(observer, workers[2].get_server_pid(), workers[3].get_server_pid())
    await workers[1].execute("commit")
    assert (await fourth).bases == [1]
    await workers[3].execute("rollback")
    await workers[0].execute("commit")
    assert (await third).bases == [1, 1]
    await workers[2].execute("commit")
    assert await bodies(observer, partition=1) == [b"0", b"2"]
    assert await bodies(observer, partition=2) == [b"1", b"2"]


async def test_many_publishers_at_once(connect: Connect, connection: Connection) -> None:
    """Under contention, offsets stay dense and each publisher's entries stay in its order."""
    news = await topic(connection, partitions=2)
    workers = [await connect() for _ in range(6)]

    async def work(name: int, worker: Connection) -> None:
        who = await publisher(worker, f"p{name}")
        for n in range(0, 60, 3):
            mine = [b"%d %d" % (name, n + i) for i in range(3)]
            await publish_many(worker, Send(news, mine, [1, 2, 1], who, n + 1))
            await publish_many(worker, Send(news, mine, [1, 2, 1], who, n + 1))

    await asyncio.gather(*(work(name, worker) for name, worker in enumerate(workers)))
    both = [*await bodies(connection, partition=1), *await bodies(connection, partition=2)]
    assert len(both) == len(set(both)) == 6 * 60
    for partition in (1, 2):
        found = [tuple(map(int, b.split())) for b in await bodies(connection, partition=partition)]
        for name in range(6):
            mine = [n for who, n in found if who == name]
            assert mine == sorted(mine)


async def test_a_count_is_stored_once(connection: Connection) -> None:
    """What a publisher sends again under the same count is not stored again."""
    news, alice = await topic(connection), await publisher(connection)
    again = Send(news, [b"a", b"b"], publisher=alice, count=1)
    assert await publish_many(connection, again) == ([0], [0])
    assert await publish_many(connection, again) == ([ALL_BEFORE], [2])
    assert await bodies(connection) == [b"a", b"b"]


async def test_partly_sent_before(connection: Connection) -> None:
    """Of a send that was partly sent before, only the rest is stored, and gets the next offsets."""
    news, alice = await topic(connection), await publisher(connection)
    await publish_many(connection, Send(news, [b"1", b"2"], publisher=alice, count=1))
    later = Send(news, [b"1", b"2", b"3", b"4"], publisher=alice, count=1)
    assert await publish_many(connection, later) == ([2], [2])
    assert await bodies(connection) == [b"1", b"2", b"3", b"4"]
    counts = await connection.fetch("select publisher_count from nuncius.entries order by 1")
    assert [row[0] for row in counts] == [1, 2, 3, 4]


async def test_duplicates_within_a_call(connection: Connection) -> None:
    """A send that stands twice in one call is stored once."""
    news, alice = await topic(connection), await publisher(connection)
    sends = [
        Send(news, [b"1", b"2"], publisher=alice, count=1),
        Send(news, [b"2", b"3"], publisher=alice, count=2),
        Send(news, [b"1"], publisher=alice, count=1),
    ]
    assert await publish_many(connection, *sends) == ([0, 2, ALL_BEFORE], [0, 1, 1])
    assert await bodies(connection) == [b"1", b"2", b"3"]


async def test_partly_sent_before_over_partitions(connection: Connection) -> None:
    """Counts go over the whole send, wherever its entries are: each run skips what is known of it."""
    news, alice = await topic(connection, partitions=2), await publisher(connection)
    before = Send(news, [b"1", b"2", b"3"], [1, 2, 1], alice, 1)
    assert await publish_many(connection, before) == ([0, 0], [0, 0])
    later = Send(news, [b"2", b"3", b"4", b"5", b"6"], [2, 1, 1, 2, 2], alice, 2)
    assert await publish_many(connection, later) == ([2, 1], [1, 1])
    assert await bodies(connection, partition=1) == [b"1", b"3", b"4"]
    assert await bodies(connection, partition=2) == [b"2", b"5", b"6"]
    third = Send(news, [b"6", b"7"], [2, 1], alice, 6)
    assert await publish_many(connection, third) == ([3, ALL_BEFORE], [0, 1])
    counts = await connection.fetch(
        "select publisher_count, body from nuncius.entries order by publisher_count"
    )
    assert [(row[0], row[1]) for row in counts] == [(n, b"%d" % n) for n in range(1, 8)]


async def test_counts_may_leap(connection: Connection) -> None:
    """A publisher may leave counts out; what is below the highest counts as sent."""
    news, alice = await topic(connection), await publisher(connection)
    await publish_many(connection, Send(news, [b"5"], publisher=alice, count=5))
    assert (await publish_many(connection, Send(news, [b"3"], publisher=alice, count=3))).bases == [
        ALL_BEFORE
    ]
    assert (await publish_many(connection, Send(news, [b"9"], publisher=alice, count=9))).bases == [1]


async def test_counts_are_per_topic_and_publisher(connection: Connection) -> None:
    """The same count is another one in another topic, and another publisher's."""
    first, second = await topic(connection, "first"), await topic(connection, "second")
    alice, bob = await publisher(connection, "alice"), await publisher(connection, "bob")
    outcome = await publish_many(
        connection,
        Send(first, [b"a"], publisher=alice, count=1),
        Send(second, [b"a"], publisher=alice, count=1),
        Send(first, [b"b"], publisher=bob, count=1),
        Send(first, [b"c"]),
    )
    assert outcome.bases == [0, 0, 1, 2]


async def test_a_resend_waits_for_the_first_attempt(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """Two attempts at the same count, at the same time and in other partitions, store one."""
    news, alice = await topic(connection, partitions=2), await publisher(connection)
    await connection.execute("begin")
    await publish_many(connection, Send(news, [b"x"], 1, alice, 1))
    again = asyncio.ensure_future(publish_many(other, Send(news, [b"x"], 2, alice, 1)))
    await until_waiting(observer, other.get_server_pid())
    await connection.execute("commit")
    assert (await again).bases == [ALL_BEFORE]
    assert await bodies(observer, partition=2) == []


async def test_a_rolled_back_count_may_be_sent_again(connection: Connection) -> None:
    """A count is seen if and only if its transaction committed."""
    news, alice = await topic(connection), await publisher(connection)
    await connection.execute("begin")
    await publish_many(connection, Send(news, [b"x"], publisher=alice, count=1))
    await connection.execute("rollback")
    assert (await publish_many(connection, Send(news, [b"x"], publisher=alice, count=1))).bases == [0]


async def test_missing_topic(connection: Connection) -> None:
    """A topic that does not exist is told apart, and does not keep its neighbours from being stored."""
    news = await topic(connection)
    outcome = await publish_many(connection, Send(999, [b"x", b"y"]), Send(news, [b"a"]), Send(999, [b"z"]))
    assert outcome.bases == [NO_TOPIC, 0, NO_TOPIC]
    assert await bodies(connection) == [b"a"]


async def test_stale_layout(connection: Connection) -> None:
    """Who chose partitions by an outdated number of them is told so; nothing of that send is stored."""
    news, alice = await topic(connection, partitions=2), await publisher(connection)
    stale = Send(news, [b"a", b"b"], [1, 2], alice, 1, layout=3)
    right = Send(news, [b"c"], 1, layout=2)
    assert (await publish_many(connection, stale, right)).bases == [OTHER_LAYOUT, OTHER_LAYOUT, 0]
    again = replace(stale, layout=2)
    assert (await publish_many(connection, again)).bases == [1, 0]


async def test_no_such_partition(connection: Connection) -> None:
    """A partition that the topic does not have stops its whole send and counts nothing."""
    news, alice = await topic(connection), await publisher(connection)
    outcome = await publish_many(connection, Send(news, [b"a", b"b"], [1, 7], alice, 1))
    assert outcome.bases == [OTHER_LAYOUT, OTHER_LAYOUT]
    assert await connection.fetchval("select nuncius.last_count('alice', 'topic', 'news')") == 0


async def test_busy_topic_is_told_apart(connection: Connection, other: Connection) -> None:
    """A caller that does not wait learns which topics are held, all runs of them; the rest is stored."""
    held, free = await topic(connection, "held", 2), await topic(connection, "free")
    alice = await publisher(connection)
    await connection.execute("begin")
    await publish_many(connection, Send(held, [b"x"], 2))
    await other.execute("set lock_timeout = '20ms'")
    outcome = await publish_many(
        other,
        Send(held, [b"a", b"b"], [1, 2], alice, 1),
        Send(free, [b"c"], 1, alice, 1),
        Send(held, [b"d"], 1),
        wait=False,
    )
    assert outcome.bases == [BUSY, BUSY, 0, BUSY]
    await connection.execute("commit")
    assert (await publish_many(other, Send(held, [b"a", b"b"], [1, 2], alice, 1))).bases == [0, 1]


async def test_busy_publisher_is_told_apart(connection: Connection, other: Connection) -> None:
    """A publisher whose counts are held makes its own topics busy, and only these."""
    first, second = await topic(connection, "first"), await topic(connection, "second")
    alice, bob = await publisher(connection, "alice"), await publisher(connection, "bob")
    await connection.execute("begin")
    await publish_many(connection, Send(first, [b"x"], 1, alice, 1))
    await other.execute("set lock_timeout = '20ms'")
    outcome = await publish_many(
        other,
        Send(second, [b"a"], 1, alice, 1),
        Send(await topic(other, "third"), [b"b"], 1, bob, 1),
        wait=False,
    )
    assert outcome.bases == [BUSY, 0]
    await connection.execute("rollback")


async def test_a_short_hold_is_waited_for(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """Even a caller that does not wait is patient for its own lock_timeout."""
    news = await topic(connection)
    await connection.execute("begin")
    await publish_many(connection, Send(news, [b"x"]))
    await other.execute("set lock_timeout = '20s'")
    patient = asyncio.ensure_future(publish_many(other, Send(news, [b"y"]), wait=False))
    await until_waiting(observer, other.get_server_pid())
    await connection.execute("commit")
    assert (await patient).bases == [1]


async def test_a_topic_deleted_while_a_publisher_waits(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """A publisher that waited for a topic to be deleted is told that it does not exist."""
    news, alice = await topic(connection), await publisher(connection)
    await connection.execute("begin")
    await connection.execute("select nuncius.delete_topic('news')")
    late = asyncio.ensure_future(publish_many(other, Send(news, [b"x"], 1, alice, 1)))
    await until_waiting(observer, other.get_server_pid())
    await connection.execute("commit")
    assert (await late).bases == [NO_TOPIC]
    assert await connection.fetchval("select count(*) from nuncius.entries") == 0
    assert await connection.fetchval("select count(*) from nuncius.publisher_counts") == 0


async def test_publish_into_a_topic_that_is_being_deleted(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """`publish` by name never answers as if it had stored what it has not."""
    await topic(connection)
    await connection.execute("begin")
    await connection.execute("select nuncius.delete_topic('news')")
    late = asyncio.ensure_future(other.fetchval("select nuncius.publish('news', 'x')"))
    await until_waiting(observer, other.get_server_pid())
    await connection.execute("commit")
    try:
        offset = await late
    except asyncpg.PostgresError:
        return
    assert offset == 0
    assert await bodies(observer) == [b"x"]


# The function for applications


@pytest.mark.parametrize(
    ("sizes", "bodies", "counts", "keys"),
    [
        ([2], 1, [None], None),
        ([1], 2, [None], None),
        ([], 1, [None], None),
        ([None], 1, [None], None),
        ([-1], 1, [None], None),
        ([1], 1, [None, None], None),
        ([2], 2, [None], ["one key"]),
    ],
)
async def test_arrays_that_do_not_go_together(
    connection: Connection, sizes: list[int], bodies: int, counts: list[None], keys: list[str] | None
) -> None:
    """When one array says more or less than another it is an error: nothing is left out without a word."""
    arguments = [[await topic(connection)], counts, [1], [1], sizes, keys, [b"x"] * bodies]
    call = "select nuncius.publish_many($1, null, null, $2, $3, $4, $5, null, $6, null, $7)"
    with pytest.raises(asyncpg.InvalidParameterValueError, match="do not go together"):
        await connection.execute(call, *arguments)


async def test_publish_by_name(connection: Connection) -> None:
    """`publish` makes the topic, answers with the offset, and takes bytes as well as text."""
    assert await connection.fetchval("select nuncius.publish('news', 'text')") == 0
    assert await connection.fetchval("select nuncius.publish('news', $1::bytea)", b"\x00\xff") == 1
    row = await connection.fetchrow(
        "select nuncius.publish('news', 'x', key => 'k', headers => '{\"a\": \"b\"}')"
    )
    assert row is not None
    assert row[0] == 2
    assert await bodies(connection) == [b"text", b"\x00\xff", b"x"]
    last = await connection.fetchrow("select * from nuncius.fetch('news', 1, 2)")
    assert last is not None
    assert (last["key"], last["headers"]) == ("k", '{"a": "b"}')


async def test_publish_with_a_count(connection: Connection) -> None:
    """`publish` with a publisher and a count answers null when that count was sent before."""
    call = "select nuncius.publish('news', $1::text, publisher => 'alice', count => $2)"
    assert await connection.fetchval(call, "a", 1) == 0
    assert await connection.fetchval(call, "a", 1) is None
    assert await connection.fetchval(call, "b", 2) == 1
    assert await connection.fetchval("select nuncius.last_count('alice', 'topic', 'news')") == 2
    found = await connection.fetch("select publisher from nuncius.fetch('news')")
    assert [row[0] for row in found] == ["alice", "alice"]


@pytest.mark.parametrize(
    "call",
    [
        "nuncius.publish('news', 'x', publisher => 'alice')",
        "nuncius.publish('news', 'x', count => 1)",
        "nuncius.publish('news', 'x', partition => 2)",
        "nuncius.publish('news', 'x', partition => 0)",
        "nuncius.publish('news', 'x', headers => '[1]')",
        "nuncius.publish('news', 'x', headers => '{\"lang\": \"en\", \"size\": 1}')",
        "nuncius.publish('news', 'x', headers => '{\"lang\": [\"en\"]}')",
    ],
)
async def test_publish_refuses_nonsense(connection: Connection, call: str) -> None:
    """A publisher without a count or the other way round, a missing partition, headers that are not texts: an
    error each."""
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await connection.fetchval(f"select {call}")
    assert await connection.fetchval("select count(*) from nuncius.entries") == 0


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
async def test_publish_in_a_transaction_of_ones_own(
    connection: Connection, observer: Connection, outcome: str
) -> None:
    """What an application publishes inside its own transaction appears if and only if that commits."""
    await connection.execute("create table orders (id int)")
    await topic(connection)
    await connection.execute("begin")
    await connection.execute("insert into orders values (1)")
    assert await connection.fetchval("select nuncius.publish('news', 'order 1')") == 0
    assert await connection.fetchval("select nuncius.publish('news', 'order 2')") == 1
    assert await bodies(observer) == []
    await connection.execute(outcome)
    expected = [b"order 1", b"order 2"] if outcome == "commit" else []
    assert await bodies(observer) == expected
    assert await observer.fetchval("select count(*) from orders") == len(expected) // 2


async def test_savepoint_rolls_back_an_entry(connection: Connection) -> None:
    """An entry that is rolled back to a savepoint leaves no gap."""
    async with connection.transaction():
        await connection.execute("select nuncius.publish('news', 'a')")
        await connection.execute("savepoint s")
        await connection.execute("select nuncius.publish('news', 'b')")
        await connection.execute("rollback to savepoint s")
        assert await connection.fetchval("select nuncius.publish('news', 'c')") == 1
    assert await bodies(connection) == [b"a", b"c"]


@pytest.mark.parametrize("level", LEVELS)
async def test_an_outdated_snapshot_is_a_serialization_failure(
    connection: Connection, other: Connection, level: str
) -> None:
    """With an outdated snapshot a publisher gets an error to retry, not another one's offset."""
    await topic(connection)
    await connection.execute(f"begin isolation level {level}")
    await connection.execute("select 1 from nuncius.topics")
    await other.execute("select nuncius.publish('news', 'theirs')")
    with pytest.raises(asyncpg.SerializationError) as refused:
        await connection.execute("select nuncius.publish('news', 'mine')")
    assert "repeat the transaction" in str(refused.value.hint)
    await connection.execute("rollback")
    assert await bodies(other) == [b"theirs"]


@pytest.mark.parametrize("level", LEVELS)
async def test_publishers_that_keep_snapshots(
    connection: Connection, other: Connection, observer: Connection, level: str
) -> None:
    """Of two publishers at once one waits and gets an error to retry, for a new topic, too."""
    for expected in range(2):
        await connection.execute(f"begin isolation level {level}")
        await connection.execute("select nuncius.publish('news', 'first')")
        await other.execute(f"begin isolation level {level}")
        waiting = asyncio.ensure_future(other.execute("select nuncius.publish('news', 'second')"))
        await until_waiting(observer, other.get_server_pid())
        await connection.execute("commit")
        with pytest.raises(asyncpg.SerializationError):
            await waiting
        await other.execute("rollback")
        await other.execute(f"begin isolation level {level}")
        assert await other.fetchval("select nuncius.publish('news', 'second')") == 2 * expected + 1
        await other.execute("commit")
    assert await bodies(connection) == [b"first", b"second"] * 2


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("count", [1, 2])
async def test_counts_that_a_snapshot_does_not_show(
    connection: Connection, other: Connection, level: str, count: int
) -> None:
    """A count that was stored since the snapshot, in any partition, is an error to retry; the retry stores
    nothing twice."""
    await topic(connection, partitions=2)
    call = "select nuncius.publish('news', 'x', publisher => 'ann', count => $1, partition => $2)"
    await connection.fetchval(call, 0, 1)
    await connection.execute(f"begin isolation level {level}")
    await connection.execute("select 1 from nuncius.topics")
    if count == 2:  # in a partition that the snapshot does not show either
        await other.execute("select nuncius.grow_topic('news', 3)")
    for sent in range(1, count + 1):
        await other.fetchval(call, sent, count + 1)
    with pytest.raises(asyncpg.SerializationError):
        await connection.fetchval(call, 1, 1)
    await connection.execute("rollback")
    await connection.execute(f"begin isolation level {level}")
    assert await connection.fetchval(call, 1, 1) is None
    assert await connection.fetchval(call, count + 1, 1) == 1
    await connection.execute("commit")
    assert await other.fetchval("select count(*) from nuncius.entries") == count + 2


async def test_other_partitions_and_snapshots(connection: Connection, other: Connection) -> None:
    """A publisher that keeps its snapshot is not disturbed by what happens in other partitions and topics."""
    await topic(connection, partitions=2)
    await connection.execute("begin isolation level repeatable read")
    await connection.execute("select 1 from nuncius.topics")
    await other.execute("select nuncius.publish('news', 'theirs', partition => 2)")
    await other.execute("select nuncius.publish('other', 'theirs')")
    async with other.transaction():
        await other.execute("select nuncius.publish('news', 'late', partition => 2)")
        for expected in range(2):
            call = "select nuncius.publish('news', 'mine', partition => 1)"
            assert await connection.fetchval(call) == expected
    await connection.execute("commit")
    assert await bodies(connection) == [b"mine", b"mine"]


@pytest.mark.parametrize("change", ["purge_topic", "delete_topic"])
async def test_an_old_snapshot_of_a_topic(connection: Connection, other: Connection, change: str) -> None:
    """Nothing is published where nobody reads, in a partition emptied or deleted since the snapshot."""
    await topic(connection)
    await connection.execute("begin isolation level repeatable read")
    await connection.execute("select 1 from nuncius.topics")
    await other.execute("select nuncius.publish('news', 'theirs')")
    await other.execute(f"select nuncius.{change}('news')")
    await other.execute("select nuncius.collect()")
    with pytest.raises(asyncpg.SerializationError):
        await connection.execute("select nuncius.publish('news', 'mine')")
    await connection.execute("rollback")
    assert await other.fetchval("select count(*) from nuncius.entries") == 0


async def test_publish_announces(connection: Connection, other: Connection) -> None:
    """Nodes hear of what is published by SQL, once for a transaction, when it commits."""
    news = await topic(connection)
    heard: list[str] = []
    await other.add_listener("nuncius", lambda *event: heard.append(str(event[3])))
    async with connection.transaction():
        await connection.execute("select nuncius.publish('news', 'a')")
        await connection.execute("select nuncius.publish('news', 'b')")
    await other.fetchval("select 1")
    assert heard == [f"t{news}"]


async def test_announcement_of_very_many(connection: Connection, other: Connection) -> None:
    """An announcement too long for a notification says "look everywhere"."""
    heard: list[str] = []
    await other.add_listener("nuncius", lambda *event: heard.append(str(event[3])))
    await connection.execute("select nuncius.announce(array(select generate_series(1, 3000)), null)")
    await other.fetchval("select 1")
    assert heard == ["*"]


# Keys


@given(
    key=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    partitions=st.integers(1, 1000),
)
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_key_and_partition(keys_seen: list[tuple[str, int]], key: str, partitions: int) -> None:
    """A key's partition is one of the topic's, and always the same."""
    chosen = partition_of(key, partitions)
    assert 1 <= chosen <= partitions
    assert chosen == partition_of(key, partitions)
    keys_seen.append((key, partitions))


@pytest.fixture
def keys_seen() -> list[tuple[str, int]]:
    return []


async def test_key_to_partition_is_the_same_in_sql(connection: Connection) -> None:
    """SQL and nodes compute the same partition for every key."""
    keys: list[tuple[str, int]] = []
    test_key_and_partition(keys)
    assert len(keys) >= 50
    rows = await connection.fetch(
        "select nuncius.partition_of(k, n) from unnest($1::text[], $2::int[]) u(k, n)",
        [key for key, _ in keys],
        [partitions for _, partitions in keys],
    )
    assert [row[0] for row in rows] == [partition_of(*pair) for pair in keys]


async def test_a_key_keeps_to_its_partition(connection: Connection) -> None:
    """`publish` with a key goes to the key's partition; without one, a publisher keeps to its own."""
    await topic(connection, partitions=5)
    for key in ("a", "b", "c", "d"):
        await connection.execute("select nuncius.publish('news', $1::text, key => $1)", key)
        assert key.encode() in await bodies(connection, partition=partition_of(key, 5))
    for count in range(1, 4):
        await connection.execute(
            "select nuncius.publish('news', 'x', publisher => 'alice', count => $1)", count
        )
    assert (await bodies(connection, partition=partition_of("alice", 5))).count(b"x") == 3
