"""Leases and feeds for tests: awaited where the broker takes callbacks, and faults to order."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from nuncius.broker import Broker, future
from nuncius.broker.limits import Limits
from nuncius.broker.model import Feed, Leased, PushedSlice
from nuncius.store.combiner.combiner import Combiner
from nuncius.store.driver import Connection
from racing import until

QUICK = Limits(retry_delay=0.02, max_attempts=3)
PATIENT = Limits(retry_delay=3600.0, max_attempts=3)


@asynccontextmanager
async def node(dsn: str, limits: Limits = QUICK) -> AsyncIterator[Broker]:
    """A broker with other limits than usual."""
    async with Broker(dsn, limits=limits, patience=20) as running:
        yield running


# Leases


async def lease(
    broker: Broker, queue_id: int, *, receiver: int = 0, limit: int = 1, wait: float = 0
) -> list[Leased]:
    leased, done = future.new()
    waiter = broker.queues.lease_soon(queue_id, receiver, done, limit=limit, wait=wait)
    try:
        return await leased  # type: ignore[no-any-return]
    finally:
        broker.queues.leave(waiter)


async def lease_one(broker: Broker, queue_id: int) -> Leased:
    """The next message, waited for."""
    async with asyncio.timeout(60):
        (one,) = await lease(broker, queue_id, wait=60)
    return one


def contents(leased: Sequence[Leased]) -> list[bytes]:
    return [one.message.body for one in leased]


async def held(connection: Connection) -> list[tuple[int, int]]:
    """Holder and attempts of all leases."""
    rows = await connection.fetch("select holder, attempts from nuncius.leases order by lease_id")
    return [(row["holder"], row["attempts"]) for row in rows]


async def until_held(connection: Connection, count: int) -> None:
    """Returns when so many messages are leased, or wait for their next attempt."""
    await until(lambda: connection.fetchval("select count(*) = $1 from nuncius.leases", count))


async def off_duty(*brokers: Broker) -> None:
    """What is due comes back only when a test says so."""
    for broker in brokers:
        await broker.duties.close()


async def returned(broker: Broker, count: int = 1) -> None:
    """Returns when so many leases have come back to their queues; all brokers there are must be off duty."""
    moved = 0
    async with asyncio.timeout(60):
        while moved < count:
            moved += await broker.leases.return_due()


class _Deaf:
    """A connection that breaks after the server has done what it was asked, and before it has said so."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def fetchrow(self, *arguments: Any) -> Any:
        await self._connection.fetchrow(*arguments)
        self._connection.terminate()
        raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")


def lose_next_lease(broker: Broker) -> None:
    """The answer to the next lease does not arrive."""
    combiner = broker.queues._room._leasing  # noqa: SLF001
    carry_out: Callable[..., Awaitable[Sequence[Any]]] = combiner._execute  # noqa: SLF001

    async def losing(connection: Connection, *arguments: Any) -> Sequence[Any]:
        combiner._execute = carry_out  # noqa: SLF001
        return await carry_out(_Deaf(connection), *arguments)

    combiner._execute = losing  # noqa: SLF001


def gate_leases(broker: Broker) -> asyncio.Event:
    """Holds the results of leases back, after PostgreSQL has answered, until the event is set."""
    return gate(broker.queues._room._leasing)  # noqa: SLF001


def gate_fetches(broker: Broker) -> asyncio.Event:
    """The same for looks at topics."""
    return gate(broker.topics._fetching)  # noqa: SLF001


async def asked(broker: Broker) -> bool:
    """Whether PostgreSQL has answered a look at a topic; the gate keeps the answer."""
    rows = await broker.store.query(
        "select 1 from pg_stat_activity where application_name = 'nuncius fetch'"
        " and datname = current_database() and state = 'idle' and query like '%fetch_many%'"
    )
    return bool(rows)


def gate(combiner: Combiner[Any]) -> asyncio.Event:
    """Holds the results of a combiner back, after PostgreSQL has answered, until the event is set."""
    carry_out: Callable[..., Awaitable[Sequence[Any]]] = combiner._execute  # noqa: SLF001
    opened = asyncio.Event()

    async def gated(*arguments: Any) -> Sequence[Any]:
        results = await carry_out(*arguments)
        await opened.wait()
        return results

    combiner._execute = gated  # noqa: SLF001
    return opened


# Feeds


class Inbox:
    """A subscriber: remembers what is pushed, as (partition, offset, body, attempts, redelivered)."""

    def __init__(self) -> None:
        self.got: list[tuple[int, int, bytes, int, bool]] = []
        self.batches: list[PushedSlice] = []
        self.broken: list[Exception] = []

    def push(self, batch: PushedSlice) -> None:
        self.batches.append(batch)
        for at in range(batch.start, batch.end):
            offset = batch.chunk.entries.first_offset + at
            body = batch.chunk.entries.bodies[at]
            self.got.append((batch.partition, offset, body, batch.attempts, offset < batch.redelivered_to))

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body, _, _ in self.got]

    async def until(self, count: int) -> None:
        """Returns when so many entries were pushed."""
        await until(lambda: len(self.got) >= count or self.broken)
        assert not self.broken


async def subscriber(
    broker: Broker, topic: str = "news", name: str = "sue", **options: Any
) -> tuple[Inbox, Feed]:
    """An inbox, and the feed that fills it."""
    inbox = Inbox()
    feed = await broker.feeds.open(topic, name, inbox.push, ended=inbox.broken.append, **options)
    return inbox, feed


async def ack(feed: Feed, offset: int, partition: int = 1, *, cumulative: bool = False) -> None:
    said, done = future.new()
    feed.ack_soon(partition, offset, done, cumulative=cumulative)
    await said


async def nack(
    feed: Feed, offset: int, partition: int = 1, *, cumulative: bool = False, reason: str = "no"
) -> None:
    said, done = future.new()
    feed.nack_soon(partition, offset, done, cumulative=cumulative, reason=reason)
    await said


async def position(connection: Connection, name: str = "sue", partition: int = 1) -> int:
    """The next offset that a subscriber gets."""
    found: int = await connection.fetchval(
        "select position from nuncius.positions_of(array(select subscription_id from nuncius.subscriptions"
        " where subscriber_name = $1)) where partition = $2",
        name,
        partition,
    )
    return found


def outstanding(feed: Feed) -> int:
    return len(feed._outstanding)  # noqa: SLF001


async def idle(feed: Feed) -> None:
    """Returns when a feed has handed over all it may, and waits."""
    await until(lambda: feed._wake._waiters and not feed._wake.is_set())  # noqa: SLF001
