"""While somebody holds a transaction open, vacuum removes nothing. No call may get slower by that: the blocks
it touches do not depend on how many messages have gone through before."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from nuncius.store.calls.taking import TakeCall, Taker
from nuncius.store.driver import Connection
from nuncius.store.store import PLANS
from store.publishing_sql import Send, publish_many, publisher, topic
from store.queue_sql import Run, depth, put_many, queue

ROUNDS = 6
BATCHES = 50  # calls a round
BATCH = 50  # messages a call
ALLOWED = 1.6  # an index may get one level deeper meanwhile

BLOCKS = """
    select sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::bigint
    from pg_statio_user_tables where schemaname = 'nuncius'"""


@pytest.fixture
async def node(dsn: str) -> AsyncIterator[Connection]:
    """A connection as nodes have it."""
    opened = await asyncpg.connect(dsn, server_settings=PLANS)
    yield opened
    await opened.close()


@pytest.fixture
async def held(other: Connection) -> None:
    """Somebody's transaction, open for as long as the test lasts."""
    await other.execute("begin isolation level repeatable read")
    await other.fetch("select count(*) from nuncius.messages, nuncius.entries")


async def blocks(node: Connection, work: Callable[[], Awaitable[Any]]) -> int:
    """How many blocks of our tables and indexes some work touches."""
    await node.fetchval("select pg_stat_force_next_flush()")
    before: int = await node.fetchval(BLOCKS)
    await work()
    await node.fetchval("select pg_stat_force_next_flush()")
    after: int = await node.fetchval(BLOCKS)
    return after - before


async def rounds(node: Connection, call: Callable[[], Awaitable[Any]]) -> list[int]:
    """The blocks that each round of calls touches."""

    async def one_round() -> None:
        for _ in range(BATCHES):
            await call()

    return [await blocks(node, one_round) for _ in range(ROUNDS)]


async def take(
    taker: Taker, node: Connection, queue_id: int, receiver: int, mode: int, limit: int = BATCH
) -> int:
    call = TakeCall(lambda _: None, None, queue_id, receiver, 0, 0, mode, limit)
    (found,) = await taker.take(node, [call], False)
    return len(found)


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("receiver", [0, 7])
async def test_taking(node: Connection, mode: int, receiver: int) -> None:
    """A taker that remembers its places touches as much at the end as at the beginning."""
    jobs, taker = await queue(node), Taker()

    async def put_and_take() -> None:
        await put_many(
            node,
            *(Run(jobs, [b"x" * 100] * (BATCH // 5), 1 + 2 * n, receiver=receiver) for n in range(5)),
        )
        assert await take(taker, node, jobs, receiver, mode) == BATCH

    touched = await rounds(node, put_and_take)
    assert await depth(node, jobs) == 0
    assert touched[-1] < ALLOWED * touched[1], touched


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("mode", [1, 2])
async def test_taking_ones_own_together(node: Connection, mode: int) -> None:
    """Readers whose calls travel together touch as much at the end as at the beginning."""
    jobs, taker, readers = await queue(node), Taker(), range(7, 12)
    calls = [TakeCall(lambda _: None, None, jobs, reader, 0, 0, mode, BATCH) for reader in readers]
    each = BATCH // len(readers)

    async def put_and_take() -> None:
        await put_many(
            node,
            *(Run(jobs, [b"x"], 1 + n % 9, receiver=reader) for n in range(each) for reader in readers),
        )
        assert [len(found) for found in await taker.take(node, calls, False)] == [each] * len(readers)

    touched = await rounds(node, put_and_take)
    assert await depth(node, jobs) == 0
    assert touched[-1] < ALLOWED * touched[1], touched


@pytest.mark.usefixtures("held")
async def test_taking_from_an_empty_queue(node: Connection) -> None:
    """To find that there is nothing costs the same, however much there was."""
    jobs, taker = await queue(node), Taker()

    async def look() -> None:
        assert await take(taker, node, jobs, 7, 1, 1) == 0

    async def some() -> None:
        await put_many(node, Run(jobs, [b"x"] * BATCH))
        assert await take(taker, node, jobs, 7, 1) == BATCH

    await some()
    early = await blocks(node, look)
    for _ in range(ROUNDS * BATCHES):
        await some()
    assert await blocks(node, look) <= 2 * early + 4  # twenty places, one level more


@pytest.mark.usefixtures("held")
async def test_leasing(node: Connection) -> None:
    """Leasing and settling, and the look at what waits, touch as much at the end as at the beginning."""
    jobs, leaser = await queue(node), Taker(lambda: 1)
    call = TakeCall(lambda _: None, None, jobs, 0, 0, 0, 1, BATCH)

    async def put_lease_and_settle() -> None:
        await put_many(node, Run(jobs, [b"x" * 100] * BATCH))
        (found,) = await leaser.take(node, [call], False)
        settled = await node.fetchval("select nuncius.settle_many($1)", [one.lease_id for one in found])
        assert len(settled) == BATCH

    async def look() -> None:
        await node.fetch("select * from nuncius.return_leases(2, 10)")

    await put_lease_and_settle()
    early = await blocks(node, look)
    touched = await rounds(node, put_lease_and_settle)
    assert touched[-1] < ALLOWED * touched[1], touched
    assert await blocks(node, look) <= 2 * early + 4


@pytest.mark.usefixtures("held")
async def test_workers(node: Connection, connection: Connection) -> None:
    """Leasing and settling by SQL touch as much at the end as at first, whatever the statistics say."""
    jobs = await queue(node, "jobs")

    async def put_lease_and_settle() -> None:
        await put_many(node, Run(jobs, [b"x" * 100] * BATCH))
        found = await connection.fetch("select lease_id from nuncius.lease('jobs', count => $1)", BATCH)
        settle = "select nuncius.settle('jobs', $1)"
        assert await connection.fetchval(settle, [one["lease_id"] for one in found]) == BATCH
        await connection.fetchval("select pg_stat_force_next_flush()")

    await put_lease_and_settle()
    touched = []
    for _ in range(3):
        touched += await rounds(node, put_lease_and_settle)
        await node.execute("analyze nuncius.leases, nuncius.messages")
    assert touched[-1] < ALLOWED * touched[1], touched


@pytest.mark.usefixtures("held")
async def test_putting_with_counts(node: Connection) -> None:
    """Finding a publisher's last count in a queue costs the same for the last message as for the first."""
    jobs, alice = await queue(node), await publisher(node)
    count = 1

    async def put() -> None:
        nonlocal count
        await put_many(node, Run(jobs, [b"x"] * BATCH, publisher=alice, count=count))
        count += BATCH

    touched = await rounds(node, put)
    assert touched[-1] < ALLOWED * touched[1], touched


@pytest.mark.usefixtures("held")
async def test_publishing(node: Connection) -> None:
    """Finding the next offset and a publisher's last count costs the same for ever."""
    news, alice = await topic(node), await publisher(node)
    count = 1

    async def publish() -> None:
        nonlocal count
        await publish_many(node, Send(news, [b"x"] * BATCH, 1, alice, count))
        count += BATCH

    touched = await rounds(node, publish)
    assert touched[-1] < ALLOWED * touched[1], touched


@pytest.mark.usefixtures("held")
async def test_publishing_where_everything_is_removed(node: Connection) -> None:
    """Retention that removes everything does not slow publishing down."""
    news = await topic(node)
    await node.execute("select nuncius.set_retention('news', 'subscribers')")

    async def publish_and_remove() -> None:
        await publish_many(node, Send(news, [b"x"] * BATCH))

    touched = []
    for _ in range(ROUNDS):
        touched += (await rounds(node, publish_and_remove))[:1]
        while await node.fetchval("select nuncius.collect()"):
            pass
    assert touched[-1] < ALLOWED * touched[1], touched


@pytest.mark.usefixtures("held")
async def test_confirming_and_reading(node: Connection) -> None:
    """A subscriber that reads and confirms as it goes touches as much at the end as at the beginning."""
    news = await topic(node)
    sue = await node.fetchval("select subscription_id from nuncius.subscribe('news', 'sue')")
    partition = await node.fetchval("select partition_id from nuncius.partitions")
    position = 0

    async def read() -> None:
        nonlocal position
        await publish_many(node, Send(news, [b"x"] * BATCH))
        row = await node.fetchrow(
            "select first_offset, bodies from nuncius.fetch_many($1, $2, $3, 1000000)",
            [partition],
            [position],
            [BATCH],
        )
        assert row is not None
        position = row["first_offset"] + len(row["bodies"])
        codes = await node.fetchval("select nuncius.confirm_many($1, $2, $3)", [sue], [partition], [position])
        assert codes == [0]

    touched = await rounds(node, read)
    assert position == ROUNDS * BATCHES * BATCH
    assert touched[-1] < ALLOWED * touched[1], touched


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("has_keys", [False, True])
@pytest.mark.parametrize("subscribers", [1, BATCH])
async def test_moving_from_a_known_place(node: Connection, subscribers: int, *, has_keys: bool) -> None:
    """Moving consumers, with request keys or without, touches as much at the end as at the beginning."""
    await publish_many(node, Send(await topic(node), [b"x"] * ROUNDS * BATCHES))
    sues = [
        await node.fetchval("select subscription_id from nuncius.subscribe('news', $1, 'earliest')", f"s{n}")
        for n in range(subscribers)
    ]
    partition = await node.fetchval("select partition_id from nuncius.partitions")
    position = 0

    async def move() -> None:
        nonlocal position
        keyed = subscribers * has_keys
        codes = await node.fetchval(
            "select nuncius.advance_many($1, $2, $3, $4, $5, $6, $7, $8, false)",
            sues,
            *([value] * subscribers for value in (partition, position, position + 1, 1)),
            list(range(1, keyed + 1)),
            *([value] * keyed for value in (f"key {position}", position)),
        )
        position += 1
        assert codes == [-1] * subscribers

    await node.execute("analyze nuncius.positions, nuncius.consumed")  # when there is nothing yet
    touched = await rounds(node, move)
    assert touched[-1] < ALLOWED * touched[1], touched


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("subscribers", [1, BATCH])
async def test_getting_by_id(node: Connection, subscribers: int) -> None:
    """Subscribers that ask for one id after the other touch as much at the end as at the beginning."""
    await publish_many(node, Send(await topic(node), [b"x"] * ROUNDS * BATCHES))
    names = [f"s{n}" for n in range(subscribers)]
    for name in names:
        await node.execute("select nuncius.subscribe('news', $1, 'earliest')", name)
    wanted = 0

    async def get() -> None:
        nonlocal wanted
        codes = await node.fetchval(
            "select codes from nuncius.get_many($1, $2, $3, 1000000)",
            ["news"] * subscribers,
            names,
            [wanted] * subscribers,
        )
        wanted += 1
        assert codes == [0] * subscribers

    await node.execute("analyze nuncius.positions, nuncius.consumed")  # when there is nothing yet
    touched = await rounds(node, get)
    assert touched[-1] < ALLOWED * touched[1], touched
