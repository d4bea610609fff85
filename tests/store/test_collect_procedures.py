"""The collector: retention in four modes, and sweeping up."""

import asyncio

import asyncpg
import pytest

from nuncius.store.driver import Connection
from racing import until_somebody_waits
from store.publishing_sql import Send, bodies, publish_many, publisher, topic


async def fill(connection: Connection, entries: int, *, size: int = 100, name: str = "news") -> None:
    """So many entries of that size, each beginning with its number."""
    found = await connection.fetchval("select nuncius.ensure_topic($1)", name)
    await publish_many(connection, Send(found, [(b"%d " % n).ljust(size, b".") for n in range(entries)]))


async def collect(connection: Connection, limit: int = 10_000) -> int:
    """Collects as a node does: until there is nothing left to do."""
    removed = 0
    while step := await connection.fetchval("select nuncius.collect($1)", limit):
        removed += step
    return removed


async def retention(connection: Connection, *mode: object, name: str = "news") -> None:
    kind, seconds, size = (*mode, None, None)[:3]
    assert await connection.fetchval(
        "select nuncius.set_retention($1, $2, $3, $4)", name, kind, seconds, size
    )


async def subscribe(connection: Connection, name: str, *, holds: bool = False) -> None:
    await connection.execute("select nuncius.subscribe('news', $1, 'earliest', $2)", name, holds)


async def confirm(connection: Connection, name: str, position: int) -> None:
    assert await connection.fetchval("select nuncius.confirm('news', $1, $2)", name, position)


async def age(connection: Connection, upto: int, interval: str) -> None:
    """Makes the entries below an offset older than they are."""
    await connection.execute(
        "update nuncius.entries set time_of_arrival = now() - $2::text::interval where entry_offset < $1",
        upto,
        interval,
    )


async def left(connection: Connection) -> list[int]:
    """The numbers of the entries that can be read."""
    return [int(body.split()[0]) for body in await bodies(connection)]


async def rows(connection: Connection) -> int:
    count: int = await connection.fetchval("select count(*) from nuncius.entries")
    return count


# Retention


async def test_forever(connection: Connection) -> None:
    """By default nothing is ever removed."""
    await fill(connection, 10)
    await age(connection, 10, "100 years")
    await subscribe(connection, "sue")
    await confirm(connection, "sue", 10)
    assert await collect(connection) == 0
    assert len(await left(connection)) == 10


async def test_until_all_subscribers_have_it(connection: Connection) -> None:
    """With 'subscribers' an entry goes when the last subscriber has confirmed it."""
    await fill(connection, 10)
    await retention(connection, "subscribers")
    await subscribe(connection, "sue")
    await subscribe(connection, "tom", holds=True)
    assert await collect(connection) == 0
    await confirm(connection, "sue", 7)
    assert await collect(connection) == 0
    await confirm(connection, "tom", 4)
    assert await collect(connection) == 4
    assert await left(connection) == [4, 5, 6, 7, 8, 9]
    await connection.execute("select nuncius.unsubscribe('news', 'tom')")
    assert await collect(connection) == 3
    assert await left(connection) == [7, 8, 9]
    assert await rows(connection) == 3


async def test_offsets_go_on_after_everything_is_removed(connection: Connection) -> None:
    """An empty partition remembers where it was."""
    await fill(connection, 5)
    await retention(connection, "subscribers")
    await subscribe(connection, "sue")
    await confirm(connection, "sue", 5)
    assert await collect(connection) == 5
    assert await rows(connection) == 0
    assert await connection.fetchval("select nuncius.publish('news', '5')") == 5
    assert await left(connection) == [5]


async def test_for_a_time(connection: Connection) -> None:
    """With 'time' an entry goes when it is older than the topic's seconds."""
    await fill(connection, 10)
    await retention(connection, "time", 3600)
    assert await collect(connection) == 0
    await age(connection, 6, "2 hours")
    assert await collect(connection) == 6
    assert await left(connection) == [6, 7, 8, 9]


async def test_for_a_time_in_small_steps(connection: Connection) -> None:
    """A step of the collector is bounded; going on until it answers 0 does all there is to do."""
    await fill(connection, 50)
    await retention(connection, "time", 3600)
    await age(connection, 45, "2 hours")
    assert await connection.fetchval("select nuncius.collect(10)") == 10
    assert await collect(connection, 10) == 35
    assert len(await left(connection)) == 5


async def test_time_waits_for_subscribers_that_hold(connection: Connection) -> None:
    """Old entries stay for a subscriber that holds retention, and for no other."""
    await fill(connection, 10)
    await retention(connection, "time", 3600)
    await subscribe(connection, "sue")
    await subscribe(connection, "tom", holds=True)
    await age(connection, 8, "2 hours")
    await confirm(connection, "tom", 3)
    assert await collect(connection) == 3
    await confirm(connection, "tom", 10)
    assert await collect(connection) == 5
    assert await left(connection) == [8, 9]


async def test_holding_does_not_shorten_the_time(connection: Connection) -> None:
    """That a holding subscriber has confirmed an entry is no reason to remove it before its time."""
    await fill(connection, 10)
    await retention(connection, "time", 3600)
    await subscribe(connection, "tom", holds=True)
    await confirm(connection, "tom", 10)
    assert await collect(connection) == 0
    assert len(await left(connection)) == 10


async def test_for_a_size(connection: Connection) -> None:
    """With 'size' the oldest entries go until a partition's bodies fit into the topic's bytes."""
    await fill(connection, 10)
    await retention(connection, "size", None, 450)
    assert await collect(connection) == 6
    assert await left(connection) == [6, 7, 8, 9]
    await fill(connection, 2)
    assert await collect(connection) == 2
    assert await left(connection) == [8, 9, 0, 1]


async def test_size_that_fits(connection: Connection) -> None:
    """Nothing goes while everything fits, to the byte."""
    await fill(connection, 5)
    await retention(connection, "size", None, 500)
    assert await collect(connection) == 0
    await retention(connection, "size", None, 499)
    assert await collect(connection) == 1


async def test_size_in_small_steps(connection: Connection) -> None:
    """However small its steps, the collector reaches the size when it goes on until it answers 0."""
    await fill(connection, 40)
    await retention(connection, "size", None, 1500)
    await collect(connection, 10)
    assert len(await left(connection)) == 15


async def test_size_waits_for_subscribers_that_hold(connection: Connection) -> None:
    """Entries stay beyond the size for a subscriber that holds retention; they count all the same."""
    await fill(connection, 10)
    await retention(connection, "size", None, 300)
    await subscribe(connection, "tom", holds=True)
    assert await collect(connection) == 0
    await confirm(connection, "tom", 4)
    assert await collect(connection) == 4
    await confirm(connection, "tom", 10)
    assert await collect(connection) == 3
    assert await left(connection) == [7, 8, 9]


async def test_holding_does_not_shrink_the_size(connection: Connection) -> None:
    """That a holding subscriber has confirmed entries is no reason to remove what still fits."""
    await fill(connection, 10)
    await retention(connection, "size", None, 100_000)
    await subscribe(connection, "tom", holds=True)
    await confirm(connection, "tom", 10)
    assert await collect(connection) == 0
    assert len(await left(connection)) == 10


async def test_size_after_a_purge(connection: Connection) -> None:
    """What was purged does not count any more."""
    await fill(connection, 10)
    await retention(connection, "size", None, 1000)
    await collect(connection)
    await connection.execute("select nuncius.purge_topic('news')")
    await fill(connection, 10)
    assert await collect(connection) == 10
    assert len(await left(connection)) == 10


async def test_size_after_another_mode(connection: Connection) -> None:
    """What another kind of retention removed in between does not count any more."""
    await fill(connection, 10)
    await retention(connection, "size", None, 1000)
    assert await collect(connection) == 0
    await retention(connection, "time", 3600)
    await age(connection, 10, "2 hours")
    assert await collect(connection) == 10
    await retention(connection, "size", None, 1000)
    await fill(connection, 10)
    assert await collect(connection) == 0
    assert len(await left(connection)) == 10


async def test_empty_bodies_and_size(connection: Connection) -> None:
    """Empty bodies take no room and do no harm."""
    await fill(connection, 3, size=0)
    await connection.execute("update nuncius.entries set body = ''")
    await retention(connection, "size", None, 1)
    assert await collect(connection) == 0
    assert await rows(connection) == 3


async def test_partitions_are_kept_by_themselves(connection: Connection) -> None:
    """Size is a partition's, not a topic's."""
    news = await topic(connection, partitions=2)
    await publish_many(connection, Send(news, [b"x" * 100] * 8, [1, 1, 1, 1, 1, 1, 2, 2]))
    await retention(connection, "size", None, 250)
    assert await collect(connection) == 4
    assert len(await bodies(connection, partition=1)) == 2
    assert len(await bodies(connection, partition=2)) == 2


@pytest.mark.parametrize("seconds", [10**9, 10**12, 2**62])
async def test_a_very_long_time(connection: Connection, seconds: int) -> None:
    """A time beyond all calendars keeps entries; it does not stop the collector for everybody."""
    await fill(connection, 3)
    await fill(connection, 3, name="other")
    await connection.execute("update nuncius.entries set time_of_arrival = now() - interval '1 day'")
    try:
        await retention(connection, "time", seconds)
    except asyncpg.PostgresError:
        await retention(connection, "forever")
    await retention(connection, "time", 60, name="other")
    assert await collect(connection) == 3
    assert len(await left(connection)) == 3


@pytest.mark.parametrize(
    "mode",
    [
        ("time",),
        ("size",),
        ("time", None, 5),
        ("size", 5, None),
        ("forever", 5, None),
        ("time", 0, None),
        ("size", None, -1),
        ("sometimes",),
    ],
)
async def test_nonsense_is_refused(connection: Connection, mode: tuple[object, ...]) -> None:
    """Retention has one of four modes, and exactly the number that goes with it."""
    await topic(connection)
    with pytest.raises(asyncpg.CheckViolationError):
        await retention(connection, *mode)


async def test_retention_of_a_missing_topic(connection: Connection) -> None:
    """There is nothing to set, and the answer says so."""
    assert not await connection.fetchval("select nuncius.set_retention('nothing', 'forever')")


# Removal


async def test_purge(connection: Connection) -> None:
    """Purging makes everything unreadable at once; the rows go with the next collection."""
    await fill(connection, 10)
    assert await connection.fetchval("select nuncius.purge_topic('news')") == 10
    assert await left(connection) == []
    assert await rows(connection) == 10
    assert await collect(connection) == 10
    assert await rows(connection) == 0
    assert await connection.fetchval("select nuncius.purge_topic('news')") == 0
    assert await connection.fetchval("select nuncius.purge_topic('nothing')") is None
    assert await connection.fetchval("select nuncius.publish('news', '10')") == 10


async def test_deleted_topics_are_cleaned(connection: Connection) -> None:
    """The entries of a deleted topic are removed step by step; a new topic of that name is empty."""
    await fill(connection, 25)
    await connection.execute("select nuncius.delete_topic('news')")
    assert await left(connection) == []
    assert await connection.fetchval("select nuncius.publish('news', '0')") == 0
    assert await connection.fetchval("select nuncius.collect(10)") == 10
    assert await collect(connection, 10) == 15
    assert await rows(connection) == 1
    assert await connection.fetchval("select count(*) from nuncius.condemned") == 0


@pytest.mark.parametrize("procedure", ["collect", "tidy"])
async def test_one_collects_at_a_time(connection: Connection, other: Connection, procedure: str) -> None:
    """Who finds somebody else at it gets null at once and need not care."""
    await fill(connection, 3)
    await connection.execute("select nuncius.purge_topic('news')")
    await connection.execute("begin")
    assert await connection.fetchval(f"select nuncius.{procedure}()") is not None
    assert await other.fetchval(f"select nuncius.{procedure}()") is None
    await connection.execute("rollback")
    assert await other.fetchval(f"select nuncius.{procedure}()") is not None


async def test_collecting_does_not_wait_for_publishers(connection: Connection, other: Connection) -> None:
    """A transaction that is open in a topic does not stop the collector, nor the other way round."""
    await fill(connection, 5)
    await connection.execute("select nuncius.purge_topic('news')")
    await connection.execute("begin")
    await connection.execute("select nuncius.publish('news', '5')")
    assert await collect(other) == 5
    await connection.execute("commit")
    assert await left(other) == [5]


# Tidying


async def test_a_topic_that_is_deleted_while_it_is_collected(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """A topic that goes just when its turn has come is passed over; others are collected all the same."""
    for name in ("news", "olds"):
        await fill(connection, 5, name=name)
        await retention(connection, "time", 60, name=name)
    await age(connection, 5, "1 hour")
    await other.execute("set application_name = 'collecting'")
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("select nuncius.delete_topic('news')")
    collecting = asyncio.ensure_future(other.fetchval("select nuncius.collect()"))
    await until_somebody_waits(observer, "collecting")
    await transaction.commit()
    async with asyncio.timeout(60):
        assert await collecting == 10  # those of the topic that went are removed, too
    assert await bodies(connection, "olds") == []


async def test_who_subscribes_while_it_is_collected(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """What is published for somebody who has just subscribed is not collected as something nobody wants."""
    await fill(connection, 5)
    await retention(connection, "subscribers")
    await other.execute("set application_name = 'collecting'")
    async with connection.transaction():
        await connection.execute("lock table nuncius.ends in access exclusive mode")  # the end of a partition
        collecting = asyncio.ensure_future(other.fetchval("select nuncius.collect()"))
        await until_somebody_waits(observer, "collecting")
        await connection.execute("select nuncius.subscribe('news', 'late')")
        await fill(connection, 1)
    async with asyncio.timeout(60):
        await collecting
    assert len(await bodies(connection)) == 1


async def test_who_moved_a_consumer_stays_known_for_a_while(connection: Connection) -> None:
    """Whoever lost the answer to a move can still find that it was made, also when others have moved on."""
    await fill(connection, 5)
    await connection.execute("select nuncius.subscribe('news', 'me', 'earliest')")
    await connection.execute(
        "insert into nuncius.positions (subscription_id, partition_id, position, mover)"
        " select subscription_id, partition_id, n, n from nuncius.subscriptions, nuncius.partitions,"
        " generate_series(1, 2) n"
    )
    movers = "select array_agg(mover order by mover) from nuncius.positions where mover is not null"
    await connection.execute("select nuncius.tidy()")
    assert await connection.fetchval(movers) == [1, 2]
    await connection.execute("update nuncius.positions set confirmed_at = now() - interval '1 hour'")
    await connection.execute("select nuncius.tidy()")
    assert await connection.fetchval(movers) == [2]


async def test_only_the_highest_rows_stay(connection: Connection) -> None:
    """Of counts and positions only the highest matter; tidying removes the others, and no more."""
    news, alice = await topic(connection), await publisher(connection)
    await subscribe(connection, "sue")
    for n in range(1, 6):
        await publish_many(connection, Send(news, [b"x"], 1, alice, n))
        await confirm(connection, "sue", n)
    assert await connection.fetchval("select nuncius.tidy()") == 8
    assert await connection.fetchval("select nuncius.tidy()") == 0
    assert await connection.fetchval("select nuncius.last_count('alice', 'topic', 'news')") == 5
    position = await connection.fetchval("select position from nuncius.positions")
    assert position == 5
    assert (await publish_many(connection, Send(news, [b"x"], 1, alice, 5))).bases == [-1]


async def test_silent_publishers_of_a_connection_are_forgotten(connection: Connection) -> None:
    """A publisher that does not last goes after a day of silence, with its counts; others stay."""
    news = await topic(connection)
    ids = {}
    for name, lasting in [("lasting", True), ("silent", False), ("busy", False), ("new", False)]:
        ids[name] = await connection.fetchval(
            "select publisher_id from nuncius.ensure_publishers($1, $2)", [name], lasting
        )
        await publish_many(connection, Send(news, [b"x"], 1, ids[name], 1))
    old = "interval '25 hours'"
    await connection.execute(
        f"update nuncius.publishers set created_at = now() - {old} where publisher_name <> 'new'"
    )
    await connection.execute(
        f"update nuncius.publisher_counts set counted_at = now() - {old} where publisher_id = any($1)",
        [ids["lasting"], ids["silent"]],
    )
    await connection.execute("select nuncius.tidy()")
    names = await connection.fetch("select publisher_name from nuncius.publishers order by 1")
    assert [row[0] for row in names] == ["busy", "lasting", "new"]
    counted = await connection.fetch("select publisher_id from nuncius.publisher_counts order by 1")
    assert [row[0] for row in counted] == sorted([ids["busy"], ids["lasting"], ids["new"]])
