"""A store finds the server that accepts writes, and leaves one that is silent or accepts none any more."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fix_servers import OwnServer, Pair
from nuncius.store import connector as connectors
from nuncius.store.connecting import Host, connect, connect_anywhere, hosts
from nuncius.store.driver import Connection
from nuncius.store.errors import OutcomeUnknown, StoreUnavailable
from nuncius.store.server import embedded
from nuncius.store.store import Store
from nuncius.testing import free_port
from racing import until, until_somebody_waits


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heart beats fast."""
    monkeypatch.setattr(connectors, "HEARTBEAT_SECONDS", 0.02)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port of this machine where connections are taken and never answered."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
async def operator(own_server: OwnServer) -> AsyncIterator[Connection]:
    """A connection to that server that the store knows nothing of."""
    made = await connect(own_server.dsn, "operator", seconds=60)
    yield made
    own_server.resume()
    await made.close()


@pytest.fixture
async def opened(own_server: OwnServer) -> AsyncIterator[Store]:
    """A store on a server that the test may suspend."""
    store = Store(own_server.dsn, patience=60, silence=0.5)
    await store.open()
    yield store
    own_server.resume()
    await store.close()


WAIT = "select pg_advisory_xact_lock(1)"


async def test_a_silent_host(dsn: str, silent_port: int) -> None:
    """A host that takes connections and is silent does not keep a node from the next one of the address."""
    both = dsn.replace("host=", "host=127.0.0.1,").replace("port=", f"port={silent_port},")
    store = Store(both, silence=120)
    async with asyncio.timeout(60):
        await store.open()
        assert (await store.query("select 1"))[0][0] == 1
        await store.close()


async def test_a_standby(pair: Pair) -> None:
    """A standby is left for the server that accepts writes; where there is none, the node says why."""
    standby_first = pair.dsn.replace(
        f"{pair.primary.cluster},{pair.standby.cluster}", f"{pair.standby.cluster},{pair.primary.cluster}"
    )
    store = Store(standby_first)
    await store.open()
    assert (await store.query("select pg_is_in_recovery()"))[0][0] is False
    await store.close()
    sink = await connect_anywhere(standby_first, "sink", seconds=60)
    assert await sink.fetchval("select pg_is_in_recovery()") is False
    await sink.close()
    with pytest.raises(StoreUnavailable, match="accepts no writes"):
        await Store(pair.standby.dsn).open()


async def test_a_server_falls_silent(
    own_server: OwnServer, opened: Store, operator: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls that a silent server has are broken off: what may be repeated waits for a server, of the rest the
    outcome is unknown."""
    lane = opened.lane("test")
    before = await lane.connection()
    await operator.execute("select pg_advisory_lock(1)")
    repeated = asyncio.ensure_future(opened.query(WAIT))
    other = asyncio.ensure_future(opened.execute(WAIT))
    await until_somebody_waits(operator, "nuncius pool", 2)
    own_server.suspend()
    with pytest.raises(OutcomeUnknown):
        await other
    assert before.is_closed()
    assert "the store is silent" in caplog.text
    assert not repeated.done()
    own_server.resume()
    await operator.execute("select pg_advisory_unlock(1)")
    await repeated
    assert await (await lane.connection()).fetchval("select 3") == 3


async def test_patience_with_a_silent_server(own_server: OwnServer, opened: Store) -> None:
    """While a server is silent, callers are refused when their patience ends."""
    lane = opened.lane("test")
    before = await lane.connection()
    own_server.suspend()
    await until(before.is_closed)
    opened.patience = 1
    with pytest.raises(StoreUnavailable, match=r"no answer within 0\.5 seconds\); nothing was stored"):
        await opened.query("select 1")


async def test_waiting_for_a_lock(opened: Store, operator: Connection) -> None:
    """A call that waits for a lock waits as long as it takes, for the server answers the heartbeat."""
    beats = "select query_start from pg_stat_activity where application_name = 'nuncius heartbeat'"
    seen = set()

    async def many() -> bool:
        seen.add(await operator.fetchval(beats))
        return len(seen) > 40  # at 20 ms each, longer than a server may be silent

    await operator.execute("select pg_advisory_lock(1)")
    waiting = asyncio.ensure_future(opened.execute(WAIT))
    await until(many)
    assert not waiting.done()
    await operator.execute("select pg_advisory_unlock(1)")
    await waiting


async def test_a_server_is_demoted(
    own_server: OwnServer, opened: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """When a server stops accepting writes under a node, calls wait until it accepts them again, and none
    fails."""
    await opened.query("create table public.notes (note text)")
    lane = opened.lane("test")
    before = await lane.connection()
    own_server.accept_writes(yes=False)
    writing = asyncio.ensure_future(opened.execute("insert into public.notes values ('x')"))
    await until(lambda: "the store accepts no writes" in caplog.text)
    assert "accepts no writes" in opened.problem()
    assert not writing.done()
    own_server.accept_writes(yes=True)
    await writing
    await until(before.is_closed)
    assert not opened.problem()
    assert (await opened.query("select count(*) from public.notes"))[0][0] == 1


async def test_giving_up(own_server: OwnServer, opened: Store, operator: Connection) -> None:
    """A store that is given up refuses all that waits for it, under way or not, and so do its companions."""
    companion = Store(own_server.dsn, patience=60)
    await companion.open()
    opened.take_along(companion)
    await operator.execute("select pg_advisory_lock(1)")
    under_way = [asyncio.ensure_future(each.execute(WAIT)) for each in (opened, companion)]
    await until_somebody_waits(operator, "nuncius pool", 2)
    opened.give_up()
    for outcome in await asyncio.gather(*under_way, return_exceptions=True):
        assert isinstance(outcome, OutcomeUnknown)
    with pytest.raises(StoreUnavailable, match="stopping"):
        await opened.query("select 1")
    with pytest.raises(StoreUnavailable, match="stopping"):
        await companion.lane("test").connection()
    await companion.close()


async def test_lanes_that_are_not_granted(dsn: str, observer: Connection) -> None:
    """A store whose server does not grant all connections says so in the server's words."""
    await observer.execute("create role narrow login connection limit 3")
    await observer.execute("grant usage on schema nuncius to narrow")
    await observer.execute("grant select on nuncius.migrations to narrow")
    store = Store(dsn.replace("//nuncius@", "//narrow@"), patience=0.3)
    await store.open()
    lanes = [store.lane(f"lane {number}") for number in range(3)]
    try:
        with pytest.raises(StoreUnavailable, match="too many connections"):
            await store.connect_lanes()
        assert re.fullmatch(r"no connection for lane \d", store.problem())
        await observer.execute("alter role narrow connection limit 4")
        await until(lambda: not store.problem())
        await store.connect_lanes()
    finally:
        for lane in lanes:
            await lane.close()
        await store.close()
        await observer.execute("drop owned by narrow")
        await observer.execute("drop role narrow")


@pytest.mark.parametrize(
    ("dsn", "expected"),
    [
        ("postgresql://me@one/db", [(None, None)]),
        ("postgresql://me:x%2C@one:1,two/db", [("one", 1), ("two", 5432)]),
        ("postgresql://me@[::1]:1,[::2]/db", [("::1", 1), ("::2", 5432)]),
        ("postgresql:///db?host=/run/a,/run/b&port=1,2", [("/run/a", 1), ("/run/b", 2)]),
        ("postgresql:///db?host=/run/a,one&port=7", [("/run/a", 7), ("one", 7)]),
        ("postgresql:///db?host=one,two:3", [("one", 5432), ("two", 3)]),
    ],
)
def test_hosts(dsn: str, expected: list[Host]) -> None:
    """An address may name several hosts, in the ways that PostgreSQL's own programs know."""
    assert hosts(dsn) == expected


@pytest.fixture
def by_tcp(data_dir: Path) -> str:
    """A server that is reached by TCP."""
    port = free_port()
    embedded.start(data_dir, tcp_port=port)
    password = (data_dir / "password").read_text().strip()
    return f"postgresql://nuncius:{password}@127.0.0.1:{port}/nuncius"


async def test_a_machine_that_vanishes(by_tcp: str) -> None:
    """Both sides of a connection over a network notice within about a minute that the other has vanished."""
    connection = await connect(by_tcp, "test", seconds=60)
    here = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]  # noqa: SLF001
    assert here.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        assert here.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
        assert await connection.fetchval("show tcp_user_timeout") == "60000"
    assert await connection.fetchval("show tcp_keepalives_idle") == "30"
    await connection.close()
