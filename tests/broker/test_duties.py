"""Background duties: every node is ready to do them, one at a time does."""

import asyncio

from broker.inside import everything
from nuncius.broker import Broker
from nuncius.broker.background import duties
from nuncius.broker.background.duties import Duties
from nuncius.broker.model import Retention
from nuncius.store.driver import Connection
from racing import until


async def test_collects_until_done(broker: Broker, connection: Connection) -> None:
    """Collecting removes all there is to remove, however many steps that takes."""
    await broker.topics.publish("news", [b"x"] * 50)
    await connection.execute(
        "insert into nuncius.entries (partition_id, entry_offset, body)"
        " select partition_id, n, 'x' from nuncius.partitions, generate_series(50, 24999) n"
    )
    await broker.topics.purge("news")
    assert await broker.duties.collect() == 25_000
    assert await broker.duties.collect() == 0
    assert await broker.duties.tidy() == 0


async def test_somebody_else_is_at_it(broker: Broker, connection: Connection) -> None:
    """When another node collects, this one has nothing to do."""
    await broker.topics.publish("news", [b"x"])
    await broker.topics.purge("news")
    await connection.execute("begin")
    await connection.execute("select pg_advisory_xact_lock(78005, n) from generate_series(1, 2) n")
    assert await broker.duties.collect() == 0
    assert await broker.duties.tidy() == 0
    await connection.execute("rollback")
    assert await broker.duties.collect() == 1


async def test_they_are_done_by_themselves(dsn: str, connection: Connection) -> None:
    """A node does its duties every few seconds, also after one of them failed."""
    async with Broker(dsn) as broker:
        quick = Duties(broker._store, broker.leases, collect_every=0.01, tidy_every=0.01)  # noqa: SLF001
        await connection.execute("alter function nuncius.collect(integer) rename to collected")
        quick.start()
        await broker.topics.publish("news", [b"a", b"b"])
        await broker.topics.set_retention("news", Retention("subscribers"))
        await connection.execute("alter function nuncius.collected(integer) rename to collect")

        async def removed() -> bool:
            return not await everything(broker, "news")

        await until(removed)
        await quick.close()


def test_pace() -> None:
    """Retention is looked after every few seconds, tidying every minute."""
    assert duties.COLLECT_SECONDS <= 10
    assert duties.TIDY_SECONDS <= 300


async def test_closing_stops_them(broker: Broker) -> None:
    """Closing ends the duties at once."""
    slow = Duties(broker._store, broker.leases)  # noqa: SLF001
    slow.start()
    async with asyncio.timeout(60):
        await slow.close()
