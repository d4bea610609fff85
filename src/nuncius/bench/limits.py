"""The limits that figures are compared with: the speed of PostgreSQL without a broker."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import asyncpg

from nuncius.store.calls.publishing import SQL as PUBLISH

BODY = bytes(range(100))
COPY_ROWS = 10_000
RAW_ROWS = 1000

BARE = """
create schema if not exists bench;
drop table if exists bench.bare;
create table bench.bare (like nuncius.entries including indexes);
"""
PUBLISHER = "select publisher_id from nuncius.ensure_publishers($1, false)"
COLUMNS = [
    "partition_id",
    "publisher_id",
    "entry_offset",
    "publisher_count",
    "time_of_arrival",
    "key",
    "headers",
    "body",
]


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def repeat(work: Callable[[int], Awaitable[object]], seconds: float) -> float:
    """Do the work again and again, sequentially. Return the rate per second."""
    done = 0
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        await work(done)
        done += 1
    return done / passed


async def engine_limit(dsn: str, seconds: float) -> float:
    """Return the rows per second that COPY stores in a bare table with the columns and indexes of entries."""
    async with connected(dsn) as db:
        await db.execute(BARE)

        async def copy(number: int) -> None:
            first, now = number * COPY_ROWS, datetime.now(UTC)
            rows = [(1, None, first + i, None, now, None, None, BODY) for i in range(COPY_ROWS)]
            await db.copy_records_to_table("bare", schema_name="bench", records=rows, columns=COLUMNS)

        rate = await repeat(copy, seconds)
        await db.execute("drop schema bench cascade")
    return rate * COPY_ROWS


async def appends(dsn: str, topic: str, rows: int, seconds: float, *, counted: bool = False) -> float:
    """Return the entries per second that direct calls of the publishing procedure store. `counted`: with a
    publisher and its counts, as clients publish."""
    async with connected(dsn) as db:
        topic_id = await db.fetchval("select nuncius.ensure_topic($1)", topic)
        publishers = counts = None
        if counted:
            publishers = [await db.fetchval(PUBLISHER, [topic])]
            counts = [1 + await db.fetchval("select nuncius.last_count($1, 'topic', $1)", topic)]
        where = [topic_id], [1], publishers, counts, [1], [1], [rows]
        bodies = [BODY] * rows

        async def append(number: int) -> None:
            del number
            await db.fetchrow(PUBLISH, *where, None, None, None, bodies, True)
            if counts is not None:
                counts[0] += rows

        return await repeat(append, seconds) * rows
