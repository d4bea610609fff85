"""Calls of the array procedures for queues, with the arguments that a test cares about."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import asyncpg

from nuncius.store.driver import Connection

PUT_MANY = (
    "select codes, skipped, ids from nuncius.put_many($1, $2, $3, $4, $5, $6, $7, $8, null, $9, $10, $11)"
)
TAKE_MANY = "select * from nuncius.take_many($1, $2, $3, $4, $5, $6, $7, $8, $9)"


@dataclass(frozen=True)
class Run:
    """Messages for one queue; what is said of them is said of each."""

    queue: int
    messages: Sequence[bytes]
    priority: int = 5
    sender: int = 0
    receiver: int = 0
    context: int = 0
    publisher: int | None = None
    count: int | None = None


@dataclass(frozen=True)
class Ask:
    """A request to take messages."""

    queue: int
    receiver: int = 0
    sender: int = 0
    context: int = 0
    mode: int = 1
    limit: int = 1
    after: Sequence[int] | None = None


class Outcome(NamedTuple):
    codes: list[int]
    skipped: list[int]
    ids: list[int]


async def put_many(connection: Connection, *runs: Run, atomic: bool = False, wait: bool = True) -> Outcome:
    each = [(run, message) for run in runs for message in run.messages]
    row = await connection.fetchrow(
        PUT_MANY,
        [run.queue for run in runs],
        [run.publisher for run in runs],
        [run.count for run in runs],
        [len(run.messages) for run in runs],
        [run.sender for run, _ in each],
        [run.receiver for run, _ in each],
        [run.context for run, _ in each],
        [run.priority for run, _ in each],
        [message for _, message in each],
        atomic,
        wait,
    )
    assert row is not None
    return Outcome(row["codes"], row["skipped"], row["ids"] or [])


async def take_many(
    connection: Connection, *asks: Ask, wait: bool = True, most_bytes: int | None = None
) -> list[asyncpg.Record]:
    after = None
    if any(ask.after is not None for ask in asks):
        after = [place for ask in asks for place in ask.after or [0] * 20]
    return await connection.fetch(
        TAKE_MANY,
        [ask.queue for ask in asks],
        [ask.receiver for ask in asks],
        [ask.sender for ask in asks],
        [ask.context for ask in asks],
        [ask.mode for ask in asks],
        [ask.limit for ask in asks],
        after,
        wait,
        most_bytes,
    )


async def taken(connection: Connection, ask: Ask) -> list[bytes]:
    """The bodies that a request gets."""
    return [row["message"] for row in await take_many(connection, ask)]


async def queue(connection: Connection, name: str = "jobs") -> int:
    """A new queue's id."""
    made: int = await connection.fetchval("select queue_id from nuncius.create_queue($1)", name)
    return made


async def depth(connection: Connection, queue_id: int) -> int:
    count: int = await connection.fetchval(
        "select count(*) from nuncius.messages where queue_id = $1", queue_id
    )
    return count
