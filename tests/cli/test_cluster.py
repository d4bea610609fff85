"""`nuncius cluster` looks after several nodes on one store."""

import asyncio
import json

from cli.commands import nuncius
from nuncius.store.driver import Connection


async def rebalance(dsn: str, *options: str) -> str:
    done = await asyncio.to_thread(nuncius, "cluster", "rebalance", "--store", dsn, *options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


async def test_rebalance(dsn: str, connection: Connection) -> None:
    """The command spreads partitions over the brokers and says how many have another one now."""
    assert await rebalance(dsn) == "The brokers have equal shares already.\n"
    await connection.execute("select nuncius.enter_node('h', 1000, 1, '{broker}', 1)")
    topic = await connection.fetchval("select nuncius.create_topic('news', 6)")
    await connection.execute("select nuncius.place_partitions($1, 5)", topic)
    await connection.execute("update nuncius.nodes set last_heard = now() + interval '1 hour'")
    await connection.execute("select nuncius.enter_node('h', 1100, 1, '{broker}', 1)")
    await connection.execute("update nuncius.nodes set last_heard = now() + interval '1 hour'")
    assert await rebalance(dsn) == "Partitions that have another broker now: 3.\n"
    assert json.loads(await rebalance(dsn, "-o", "json")) == {"moved": 0}


def test_two_stores() -> None:
    """One store is named, not two."""
    done = nuncius("cluster", "rebalance", "--store", "x", "--data-dir", "y")
    assert done.returncode == 2
    assert "not both" in done.stderr


async def test_an_old_store(empty_dsn: str) -> None:
    """A store without the schema of this program is left as it is."""
    done = await asyncio.to_thread(nuncius, "cluster", "rebalance", "--store", empty_dsn)
    assert done.returncode != 0
    assert "run nuncius migrate" in done.stderr
