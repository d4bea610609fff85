"""Subscriptions in SQL: a durable place in a topic that only moves forward."""

import asyncio

import asyncpg
import pytest

from nuncius.store.driver import Connection
from racing import until_waiting
from store.publishing_sql import Send, bodies, publish_many, topic

NO_SUBSCRIPTION, NOT_PUBLISHED = -2, -7


async def subscribe(
    connection: Connection, subscriber: str = "sue", start: str = "latest", name: str = "news"
) -> tuple[int, bool]:
    row = await connection.fetchrow("select * from nuncius.subscribe($1, $2, $3)", name, subscriber, start)
    assert row is not None
    return row["subscription_id"], row["created"]


async def places(connection: Connection, subscription: int) -> list[int]:
    """The next offset to read, partition by partition."""
    rows = await connection.fetch("select * from nuncius.positions_of($1)", [subscription])
    return [row["position"] for row in rows]


async def confirm(connection: Connection, position: int, partition: int = 1) -> bool:
    confirmed: bool = await connection.fetchval(
        "select nuncius.confirm('news', 'sue', $1, $2)", position, partition
    )
    return confirmed


async def test_latest_sees_what_comes_after(connection: Connection) -> None:
    """A subscription that starts at 'latest' begins after everything that is there."""
    news = await topic(connection, partitions=2)
    await publish_many(connection, Send(news, [b"a", b"b", b"c"], [1, 1, 2]))
    subscription, created = await subscribe(connection)
    assert created
    assert await places(connection, subscription) == [2, 1]


async def test_earliest_sees_what_is_still_there(connection: Connection) -> None:
    """A subscription that starts at 'earliest' begins with the first entry that retention has left."""
    news = await topic(connection)
    await publish_many(connection, Send(news, [b"a", b"b"]))
    await connection.execute("select nuncius.purge_topic('news')")
    await publish_many(connection, Send(news, [b"c"]))
    subscription, _ = await subscribe(connection, start="earliest")
    assert await places(connection, subscription) == [2]


async def test_latest_does_not_miss_what_is_under_way(connection: Connection, other: Connection) -> None:
    """An entry that commits after the subscription was made belongs to it."""
    news = await topic(connection)
    await connection.execute("begin")
    await publish_many(connection, Send(news, [b"a"]))
    subscription, _ = await subscribe(other)
    await connection.execute("commit")
    assert await places(other, subscription) == [0]


async def test_subscribing_again_keeps_the_place(connection: Connection) -> None:
    """Subscribing is idempotent: the place stays, whatever start is asked for."""
    news = await topic(connection)
    first, _ = await subscribe(connection)
    await publish_many(connection, Send(news, [b"a", b"b"]))
    again, created = await subscribe(connection, start="latest")
    assert (again, created) == (first, False)
    assert await places(connection, first) == [0]


async def test_subscribing_makes_the_topic(connection: Connection) -> None:
    """One may subscribe before anything is published."""
    subscription, created = await subscribe(connection, name="later")
    assert created
    await connection.execute("select nuncius.publish('later', 'x')")
    assert await places(connection, subscription) == [0]


async def test_two_subscribe_at_once(connection: Connection, other: Connection, observer: Connection) -> None:
    """Of two simultaneous subscriptions under one name one is made, and both get it."""
    await topic(connection)
    await connection.execute("begin")
    first, created = await subscribe(connection)
    assert created
    second = asyncio.ensure_future(subscribe(other))
    await until_waiting(observer, other.get_server_pid())
    await connection.execute("commit")
    assert await second == (first, False)


async def test_start_must_be_known(connection: Connection) -> None:
    """A start that is neither 'latest' nor 'earliest' is an error."""
    with pytest.raises(asyncpg.InvalidParameterValueError, match="earliest"):
        await subscribe(connection, start="tomorrow")
    with pytest.raises(asyncpg.InvalidParameterValueError, match="earliest"):
        await connection.execute("select nuncius.subscribe('news', 'sue', null)")


async def test_confirm_moves_forward_only(connection: Connection) -> None:
    """Confirming what is confirmed, or less, changes nothing."""
    news = await topic(connection)
    subscription, _ = await subscribe(connection)
    await publish_many(connection, Send(news, [b"%d" % n for n in range(10)]))
    for position, expected in [(3, 3), (3, 3), (1, 3), (7, 7), (0, 7), (-5, 7), (10, 10)]:
        assert await confirm(connection, position)
        assert await places(connection, subscription) == [expected]


async def test_confirm_beyond_the_end(connection: Connection) -> None:
    """What was not published cannot be confirmed, nor can nothing."""
    news = await topic(connection)
    subscription, _ = await subscribe(connection)
    await publish_many(connection, Send(news, [b"a"]))
    assert not await confirm(connection, 2)
    assert not await connection.fetchval("select nuncius.confirm('news', 'sue', null)")
    assert await places(connection, subscription) == [0]
    assert await confirm(connection, 1)


async def test_confirm_what_is_not_committed(connection: Connection, other: Connection) -> None:
    """An entry of a transaction that is still open counts as not published."""
    news = await topic(connection)
    await subscribe(connection)
    await connection.execute("begin")
    await publish_many(connection, Send(news, [b"a"]))
    assert not await confirm(other, 1)
    await connection.execute("commit")
    assert await confirm(other, 1)


async def test_confirm_by_names_that_do_not_exist(connection: Connection) -> None:
    """No such topic, subscriber or partition: false."""
    await topic(connection)
    await subscribe(connection)
    call = "select nuncius.confirm($1, $2, 0, $3)"
    assert not await connection.fetchval(call, "nothing", "sue", 1)
    assert not await connection.fetchval(call, "news", "nobody", 1)
    assert not await connection.fetchval(call, "news", "sue", 2)
    assert await connection.fetchval(call, "news", "sue", 1)


async def test_confirm_many(connection: Connection) -> None:
    """Each item is answered for itself; the highest of several for one place counts."""
    news = await topic(connection, partitions=2)
    elsewhere = await topic(connection, "elsewhere")
    await publish_many(connection, Send(news, [b"x"] * 8, [1, 2] * 4), Send(elsewhere, [b"y"] * 3))
    sue, _ = await subscribe(connection, start="earliest")
    tom, _ = await subscribe(connection, "tom", "earliest", "elsewhere")
    rows = await connection.fetch("select partition_id from nuncius.partitions order by 1")
    one, two, far = (row[0] for row in rows)
    codes = await connection.fetchval(
        "select nuncius.confirm_many($1, $2, $3)",
        [sue, sue, sue, tom, tom, 999, sue, sue],
        [one, one, two, far, one, one, 999, two],
        [2, 4, 9, 3, 1, 1, 1, 1],
    )
    assert codes == [0, 0, NOT_PUBLISHED, 0, NO_SUBSCRIPTION, NO_SUBSCRIPTION, NO_SUBSCRIPTION, 0]
    assert await places(connection, sue) == [4, 1]
    assert await places(connection, tom) == [3]


async def test_confirming_at_once(connection: Connection, other: Connection, observer: Connection) -> None:
    """Two that confirm the same place at the same time both succeed, and the higher one counts."""
    news = await topic(connection)
    subscription, _ = await subscribe(connection)
    await publish_many(connection, Send(news, [b"x"] * 9))
    await connection.execute("begin")
    await confirm(connection, 5)
    assert await confirm(other, 7)
    same = asyncio.ensure_future(confirm(other, 5))
    assert await same
    await connection.execute("commit")
    assert await places(observer, subscription) == [7]


async def test_unsubscribe(connection: Connection) -> None:
    """Unsubscribing forgets the place; subscribing again begins anew."""
    news = await topic(connection)
    first, _ = await subscribe(connection)
    await publish_many(connection, Send(news, [b"a", b"b"]))
    await confirm(connection, 1)
    assert await connection.fetchval("select nuncius.unsubscribe('news', 'sue')")
    assert not await connection.fetchval("select nuncius.unsubscribe('news', 'sue')")
    assert not await connection.fetchval("select nuncius.unsubscribe('nothing', 'sue')")
    assert await connection.fetchval("select count(*) from nuncius.positions") == 0
    again, created = await subscribe(connection)
    assert created
    assert again != first
    assert await places(connection, again) == [2]


async def test_purging_moves_subscribers_on(connection: Connection) -> None:
    """After a purge everybody goes on with what comes next."""
    news = await topic(connection)
    subscription, _ = await subscribe(connection)
    await publish_many(connection, Send(news, [b"a", b"b"]))
    assert await connection.fetchval("select nuncius.purge_topic('news')") == 2
    assert await places(connection, subscription) == [2]
    assert await connection.fetchval("select lag from nuncius.list_subscriptions('news')") == 0
    assert (await publish_many(connection, Send(news, [b"c"]))).bases == [2]
    assert await bodies(connection) == [b"c"]


async def test_lists_subscriptions_with_their_lag(connection: Connection) -> None:
    """A subscription's lag is what is published and not confirmed, over all partitions."""
    news = await topic(connection, partitions=2)
    await subscribe(connection, "sue")
    await subscribe(connection, "tom", name="other")
    await publish_many(connection, Send(news, [b"x"] * 5, [1, 1, 1, 2, 2]))
    await confirm(connection, 2)
    listed = await connection.fetch("select * from nuncius.list_subscriptions()")
    assert [(row["topic_name"], row["subscriber_name"], row["lag"]) for row in listed] == [
        ("news", "sue", 3),
        ("other", "tom", 0),
    ]
    only = await connection.fetch("select * from nuncius.list_subscriptions(subscriber => 'tom')")
    assert [row["topic_name"] for row in only] == ["other"]


async def test_deleting_a_topic_ends_its_subscriptions(connection: Connection) -> None:
    """A deleted topic has no subscribers; a new one of that name begins with none."""
    news = await topic(connection)
    subscription, _ = await subscribe(connection)
    await publish_many(connection, Send(news, [b"a"]))
    await confirm(connection, 1)
    assert await connection.fetchval("select nuncius.delete_topic('news')")
    assert not await connection.fetchval("select nuncius.delete_topic('news')")
    for table in ("subscriptions", "positions", "partitions"):
        assert await connection.fetchval(f"select count(*) from nuncius.{table}") == 0
    assert await places(connection, subscription) == []


async def test_a_subscription_made_while_the_topic_is_deleted(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """No subscription is left over for a topic that is gone."""
    await topic(connection)
    await connection.execute("begin")
    await connection.execute("select nuncius.delete_topic('news')")
    late = asyncio.ensure_future(subscribe(other))
    await until_waiting(observer, other.get_server_pid())
    await connection.execute("commit")
    await late
    orphans = await connection.fetchval(
        "select count(*) from nuncius.subscriptions s"
        " where not exists (select from nuncius.topics t where t.topic_id = s.topic_id)"
    )
    assert orphans == 0
