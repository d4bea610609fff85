"""A lane is one connection that repairs itself."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fix_store import let_in
from nuncius.store.combiner.lane import Lane
from nuncius.store.connector import Connector
from nuncius.store.driver import Connection
from nuncius.store.errors import StoreUnavailable
from nuncius.store.store import Store
from racing import backends, terminate, until


@pytest.fixture
async def connector(dsn: str) -> AsyncIterator[Connector]:
    made = Connector(dsn)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def lane(connector: Connector) -> AsyncIterator[Lane]:
    made = Lane(connector, "test", patience=20)
    yield made
    await made.close()


async def test_always_the_same_connection(lane: Lane, observer: Connection) -> None:
    """Everybody gets the one connection, named for who looks at the server's list."""
    first, second = await asyncio.gather(lane.connection(), lane.connection())
    assert first is second
    assert await lane.connection() is first
    assert await backends(observer, "nuncius test") == [first.get_server_pid()]


async def test_connects_again(lane: Lane, observer: Connection) -> None:
    """A connection that the server ended is replaced."""
    first = await lane.connection()
    assert await terminate(observer, "nuncius test") == 1
    await until(first.is_closed)
    second = await lane.connection()
    assert second is not first
    assert await second.fetchval("select 1") == 1


async def test_discarding(lane: Lane, observer: Connection) -> None:
    """A connection that failed is given up at once, and its backend goes."""
    first = await lane.connection()
    pid = first.get_server_pid()
    lane.discard()
    lane.discard()
    assert await lane.connection() is not first

    async def gone() -> bool:
        return pid not in await backends(observer, "nuncius test")

    await until(gone)


async def test_settings(connector: Connector) -> None:
    """Settings of the lane are those of its connection, also after a reconnect."""
    lane = Lane(connector, "test", patience=20, settings={"lock_timeout": "123ms"})
    for _ in range(2):
        connection = await lane.connection()
        assert await connection.fetchval("show lock_timeout") == "123ms"
        lane.discard()
    await lane.close()


async def test_a_database_that_lets_nobody_in(
    dsn: str, lane: Lane, observer: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """A database that takes no connections for a while is waited for like a server that is away."""
    await lane.connection()
    let_in(dsn, may=False)
    assert await terminate(observer, "nuncius test") == 1
    lane.discard()
    waiting = asyncio.ensure_future(lane.connection())
    await until(lambda: "store unreachable" in caplog.text)
    let_in(dsn, may=True)
    assert await (await waiting).fetchval("select 1") == 1


async def test_nobody_there(dsn: str, connector: Connector) -> None:
    """When no server takes the connection, callers wait as long as they are made to, then get an error."""
    let_in(dsn, may=False)
    lane = Lane(connector, "test", patience=0.1)
    waiting = [asyncio.ensure_future(lane.connection()) for _ in range(3)]
    for outcome in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(outcome, StoreUnavailable)
        assert "nothing was stored" in str(outcome)
    async with asyncio.timeout(0.5):
        with pytest.raises(StoreUnavailable):
            await lane.connection()
    await lane.close()
    let_in(dsn, may=True)


async def test_a_store_that_is_not_there(tmp_path: object) -> None:
    """Opening a store that does not answer fails at once with a clear error."""
    store = Store(f"postgresql://nobody@/nothing?host={tmp_path}")
    with pytest.raises(StoreUnavailable, match="cannot connect"):
        await store.open()


async def test_closing_while_connecting(dsn: str, connector: Connector) -> None:
    """Closing does not wait for a server that takes no connection."""
    let_in(dsn, may=False)
    lane = Lane(connector, "test", patience=60)
    waiting = asyncio.ensure_future(lane.connection())
    await asyncio.sleep(0)
    async with asyncio.timeout(40):
        await lane.close()
    waiting.cancel()
    await asyncio.wait([waiting])
    let_in(dsn, may=True)


async def test_read_committed_everywhere(dsn: str, connection: Connection) -> None:
    """A node works in READ COMMITTED, also where another level is usual."""
    database = await connection.fetchval("select current_database()")
    await connection.execute(
        f"alter database {database} set default_transaction_isolation = 'repeatable read'"
    )
    store = Store(dsn)
    await store.open()
    lane = store.lane("test")
    asked = "select current_setting('transaction_isolation')"
    assert await (await lane.connection()).fetchval(asked) == "read committed"
    assert (await store.query(asked))[0][0] == "read committed"
    await lane.close()
    await store.close()
