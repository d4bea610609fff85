"""Nodes behind PgBouncer: in session mode they work, in transaction mode they say why not."""

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Iterator

import asyncpg
import pytest

from fix_store import new_folder
from nuncius import testing
from nuncius.store.errors import StoreUnavailable, UnsupportedServer
from nuncius.store.server import account as accounts
from nuncius.store.store import Store
from racing import until

PGBOUNCER = shutil.which("pgbouncer")
pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="needs PgBouncer")

SETTINGS = """\
[databases]
* = host={host} dbname={database} user=nuncius
[pgbouncer]
unix_socket_dir = {folder}
listen_addr =
auth_type = any
logfile = {folder}/log
"""

Pooling = Callable[..., str]


@pytest.fixture
def pooler(dsn: str) -> Iterator[Pooling]:
    """Starts PgBouncer in front of the test's database, with its own defaults for all that is not given, and
    answers with its address."""
    folder = new_folder()
    running: list[subprocess.Popen[bytes]] = []

    def start(**settings: object) -> str:
        address, _, host = dsn.partition("&")[0].partition("?host=")
        text = SETTINGS.format(host=host, database=address.rpartition("/")[2], folder=folder)
        account = accounts.choose(folder / "none")
        account.own(folder)
        if account.is_another:
            settings["user"] = accounts.NAME
        file = folder / "pgbouncer.ini"
        file.write_text(text + "".join(f"{name} = {value}\n" for name, value in settings.items()))
        assert PGBOUNCER is not None
        running.append(subprocess.Popen([PGBOUNCER, "--quiet", str(file)], cwd=folder))
        return f"postgresql://nuncius@/any?host={folder}&port=6432"

    yield start
    for process in running:
        process.terminate()
        process.wait()
    shutil.rmtree(folder)


async def until_listening(address: str) -> None:
    async def is_listening() -> bool:
        try:
            connection = await asyncpg.connect(address)
        except OSError:
            return False
        await connection.close()
        return True

    await until(is_listening)


async def test_session_mode(pooler: Pooling) -> None:
    """A node works behind a PgBouncer in session mode that has its usual settings and enough connections."""
    address = pooler(default_pool_size=60)
    await until_listening(address)
    with testing.broker("--http-port=0", "--tribbler-port=0", store=address) as node:
        async with node.async_client(timeout=60) as client, node.async_client(timeout=60) as reader:
            await client.create_queue("jobs")
            subscription = await reader.subscribe("news", "sue")
            reading = asyncio.ensure_future(subscription.next_batch(60))
            await client.publish("news", b"hello")
            assert [entry.text for entry in await reading] == ["hello"]
            await client.put("jobs", b"work")
            message = await client.take("jobs", wait=20)
            assert message is not None
            assert message.text == "work"
        assert not node.log.read_text()


async def test_settings_behind_a_pooler(pooler: Pooling) -> None:
    """Sessions have the settings of a node behind a pooler, too, also when they come from the pool again."""
    address = pooler()
    await until_listening(address)
    store = Store(address)
    await store.open()
    lane = await store.lane("test", wait=False).connection()
    assert await lane.fetchval("show plan_cache_mode") == "force_generic_plan"
    assert await lane.fetchval("show lock_timeout") == "20ms"
    for _ in range(3):
        await store.query("set default_transaction_isolation = 'serializable'")
        assert (await store.query("show default_transaction_isolation"))[0][0] == "read committed"
    await store.close()


async def test_transaction_mode(pooler: Pooling) -> None:
    """A PgBouncer in transaction mode is refused at the start, with what to change."""
    address = pooler(pool_mode="transaction")
    await until_listening(address)
    with (
        pytest.raises(testing.BrokerDidNotStart, match=r"transaction mode.*pool_mode = session"),
        testing.broker(store=address),
    ):
        pass
    with pytest.raises(UnsupportedServer, match="transaction mode"):
        await Store(address).open()


async def test_statement_mode(pooler: Pooling) -> None:
    """A PgBouncer in statement mode is refused at the start, in its own words."""
    address = pooler(pool_mode="statement")
    await until_listening(address)
    with pytest.raises(StoreUnavailable, match="statement pooling mode"):
        await Store(address).open()


async def test_too_few_connections(pooler: Pooling) -> None:
    """A node that the pooler grants too few connections is not ready, and says for which it waits."""
    address = pooler(default_pool_size=4)
    await until_listening(address)
    store = Store(address, patience=1, silence=0.5)
    await store.open()
    lanes = [store.lane(f"lane {number}") for number in range(5)]
    with pytest.raises(StoreUnavailable, match=r"no answer within 0\.5 seconds"):
        await store.connect_lanes()
    assert "no connection for lane" in store.problem()
    for lane in lanes:
        await lane.close()
    await store.close()
