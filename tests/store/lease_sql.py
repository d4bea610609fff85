"""Calling the procedures of leases."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from nuncius.store.driver import Connection
from store.queue_sql import Ask

LEASE_MANY = "select * from nuncius.lease_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
MOST = 3


async def lease_many(
    connection: Connection, *asks: Ask, holder: int = 1, batch: int = 1, wait: bool = True
) -> list[asyncpg.Record]:
    return await connection.fetch(
        LEASE_MANY,
        holder,
        batch,
        [ask.queue for ask in asks],
        [ask.receiver for ask in asks],
        [ask.sender for ask in asks],
        [ask.context for ask in asks],
        [ask.mode for ask in asks],
        [ask.limit for ask in asks],
        None,
        wait,
    )


async def settle(connection: Connection, *ids: int) -> list[int]:
    settled: list[int] = await connection.fetchval("select nuncius.settle_many($1)", ids)
    return settled


async def release(
    connection: Connection, ids: Sequence[int], reason: str | None = None, delay: float = 60
) -> list[int]:
    queues: list[int] = await connection.fetchval(
        "select nuncius.release_many($1, $2, $3, $4)", ids, [reason] * len(ids), delay, MOST
    )
    return queues


async def return_leases(connection: Connection, *, judge: bool = True, limit: int = 1000) -> Any:
    return await connection.fetchrow(
        "select moved, queues from nuncius.return_leases(60, $1, $2, $3)", MOST, judge, limit
    )


async def held(connection: Connection) -> list[tuple[int, int]]:
    """Holder and attempts of all leases."""
    rows = await connection.fetch("select holder, attempts from nuncius.leases order by lease_id")
    return [(row["holder"], row["attempts"]) for row in rows]


async def hold(connection: Connection, number: int) -> None:
    """What a node does when it begins."""
    await connection.execute("select pg_advisory_lock(78009, $1)", number)
    await connection.execute("insert into nuncius.holders values ($1)", number)
