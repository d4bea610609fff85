"""Growing topics in SQL: more partitions, never fewer, whatever is published meanwhile."""

import asyncio

import asyncpg
import pytest

from fix_connections import Connect
from nuncius.store.driver import Connection
from racing import until_waiting
from store.publishing_sql import Send, bodies, publish_many, topic


async def test_growing_a_topic(connection: Connection) -> None:
    """Partitions are added until there are so many, and listeners are told; there are never fewer."""
    await topic(connection, "news", 2)
    await connection.fetch("select nuncius.publish('news', 'a', partition => 2)")
    told: list[object] = []
    await connection.add_listener("nuncius", lambda *arguments: told.append(arguments[-1]))
    grow = "select nuncius.grow_topic($1, $2)"
    assert await connection.fetchval(grow, "news", 4)
    assert await connection.fetchval(grow, "news", 4)
    assert told == ["c"]
    assert await connection.fetchval("select array_agg(partition order by 1) from nuncius.partitions") == [
        1,
        2,
        3,
        4,
    ]
    assert await bodies(connection, "news", 2) == [b"a"]
    assert not await connection.fetchval(grow, "other", 4)
    for fewer in (3, 0, None):
        with pytest.raises(
            asyncpg.InvalidParameterValueError, match="has 4 partitions, and cannot have fewer"
        ):
            await connection.fetchval(grow, "news", fewer)


async def test_growing_a_topic_while_it_is_published_to(connection: Connection, connect: Connect) -> None:
    """Nobody waits for the other: a publisher that is not done keeps its partition, the next is told."""
    number = await topic(connection, "news")
    publisher_, other = await connect(), await connect()
    transaction = publisher_.transaction()
    await transaction.start()
    assert (await publish_many(publisher_, Send(number, [b"a"], layout=1))).bases == [0]
    assert await other.fetchval("select nuncius.grow_topic('news', 2)")
    assert (await publish_many(other, Send(number, [b"b"], partitions=2, layout=2))).bases == [0]
    await transaction.commit()
    assert (await publish_many(connection, Send(number, [b"c"], layout=1))).bases == [-4]
    assert await bodies(connection, "news", 1) == [b"a"]
    assert await bodies(connection, "news", 2) == [b"b"]


async def test_a_topic_is_grown_by_one_at_a_time(connection: Connection, connect: Connect) -> None:
    """Who comes second waits for the first, and finds what it made."""
    await topic(connection, "news")
    first, second = await connect(), await connect()
    transaction = first.transaction()
    await transaction.start()
    await first.fetchval("select nuncius.grow_topic('news', 3)")
    growing = asyncio.create_task(second.fetchval("select nuncius.grow_topic('news', 5)"))
    await until_waiting(connection, second.get_server_pid())
    await transaction.commit()
    assert await growing
    assert await connection.fetchval("select count(*) from nuncius.partitions") == 5
