"""`nuncius doctor` sees what is wrong and says what to do."""

import json
from pathlib import Path

import asyncpg
import pytest

from cli.commands import nuncius
from fix_servers import OwnServer
from nuncius import testing
from nuncius.broker.observe import facts
from nuncius.broker.observe.findings import Finding, Severity
from nuncius.cli.commands.doctor import examination
from nuncius.store.driver import Connection

NOWHERE = "nuncius://127.0.0.1:1"


async def findings(connection: Connection) -> dict[str, Finding]:
    return {found.check: found async for found in examination.examine(connection)}


def test_a_healthy_node() -> None:
    """Everything about a running node is ok, for people and for programs."""
    with testing.broker() as broker:
        place = ["--data-dir", str(broker.data_dir), "--url", broker.url]
        told = nuncius("doctor", *place)
        assert (told.returncode, told.stderr) == (0, "")
        assert {line.split()[0] for line in told.stdout.splitlines()} == {"ok"}
        document = json.loads(nuncius("doctor", *place, "-o", "json").stdout)
    assert {found["state"] for found in document} == {"ok"}
    checks = [found["check"] for found in document]
    assert checks == [
        "Python",
        "programs",
        "data directory",
        "disk",
        "server",
        "PostgreSQL",
        "schema",
        "durability",
        "settings",
        "transactions",
        "rows",
        "connections",
        "deliveries",
        "subscriptions",
        "queues",
        "activity",
        "cluster",
        "node",
    ]


def test_before_the_first_start(data_dir: Path) -> None:
    """What is merely not there yet is no failure, and looking does not make it."""
    done = nuncius("doctor", "--data-dir", str(data_dir), "--url", NOWHERE)
    assert done.returncode == 0
    assert "warn  data directory" in done.stdout
    assert "warn  server" in done.stdout
    assert "warn  node" in done.stdout
    assert not data_dir.exists()
    data_dir.mkdir()
    assert "is empty" in nuncius("doctor", "--data-dir", str(data_dir), "--url", NOWHERE).stdout


def test_a_directory_that_is_not_ours(tmp_path: Path) -> None:
    """A directory with other things in it fails."""
    (tmp_path / "thesis.tex").touch()
    done = nuncius("doctor", "--data-dir", str(tmp_path), "--url", NOWHERE)
    assert done.returncode == 1
    assert "it contains thesis.tex" in done.stdout


@pytest.mark.parametrize("store", ["postgresql://nobody@127.0.0.1:1/none", "nonsense"])
def test_no_store(store: str) -> None:
    """A store that cannot be reached fails."""
    done = nuncius("doctor", "--store", store, "--url", NOWHERE, "-o", "json")
    assert done.returncode == 1
    states = {found["check"]: found["state"] for found in json.loads(done.stdout)}
    assert states == {"Python": "ok", "database": "fail", "node": "warn"}


def test_a_store_that_accepts_no_writes(own_server: OwnServer) -> None:
    """A standby, or a server that was demoted, fails, and the reason is told."""
    own_server.accept_writes(yes=False)
    done = nuncius("doctor", "--store", own_server.dsn, "--url", NOWHERE)
    assert done.returncode == 1
    assert "fail  database" in done.stdout
    assert "accepts no writes" in done.stdout


def test_wrong_use(tmp_path: Path) -> None:
    """A store is named in one way, and a node by its address."""
    both = nuncius("doctor", "--store", "x", "--data-dir", str(tmp_path))
    assert both.returncode == 2
    address = nuncius("doctor", "--data-dir", str(tmp_path), "--url", "http://x")
    assert address.returncode == 2
    assert "a broker's address looks like" in address.stderr


async def test_durability(dsn: str, connection: Connection) -> None:
    """A database that forgets commits in a crash fails."""
    name = await connection.fetchval("select current_database()")
    await connection.execute(f"alter database {name} set synchronous_commit = off")
    careless = await asyncpg.connect(dsn)
    found = (await findings(careless))["durability"]
    await careless.close()
    assert found.state is Severity.FAIL
    assert "synchronous_commit" in found.detail


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ("insert into nuncius.migrations (version, name) values (99, 'x')", Severity.FAIL),
        ("update nuncius.migrations set version = version - 1", Severity.WARN),
        ("drop schema nuncius cascade", Severity.WARN),
    ],
    ids=["newer", "older", "none"],
)
async def test_schema(connection: Connection, change: str, state: Severity) -> None:
    """A schema of another version is told."""
    await connection.execute(change)
    assert (await findings(connection))["schema"].state is state


async def test_an_empty_store(connection: Connection) -> None:
    """All checks of an empty store are ok."""
    found = await findings(connection)
    for check in ("deliveries", "subscriptions", "queues", "activity", "cluster", "settings"):
        assert found[check].state is Severity.OK
    assert found["queues"].detail == "0, all empty"


async def test_failures_and_dead_letters(connection: Connection) -> None:
    """Failed deliveries and dead letters are counted, and the place with most dead letters is named."""
    await connection.execute(
        "insert into nuncius.leases (lease_id, origin, queue_id, sender_id, receiver_id, context, priority,"
        " time_of_arrival, message, attempts, holder, batch, due_at)"
        " values (1, 1, 1, 0, 0, 0, 5, now(), 'x', 1, 0, 1, now() + interval '1 h')"
    )
    failing = (await findings(connection))["deliveries"]
    assert (failing.state, failing.detail) == (Severity.WARN, "1 message awaiting redelivery")
    await connection.execute("select nuncius.publish('dead/t', 'x'::text)")
    dead = (await findings(connection))["dead letters"]
    assert (dead.state, dead.detail) == (Severity.WARN, "1 dead-lettered message, most in 'dead/t'")


async def test_lag(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The subscription with the highest lag is named."""
    monkeypatch.setattr(facts, "GREAT_LAG", 1)
    await connection.execute("select nuncius.subscribe('t', 'sleeper', 'earliest')")
    for _ in range(2):
        await connection.execute("select nuncius.publish('t', 'x'::text)")
    found = (await findings(connection))["subscriptions"]
    assert found.state is Severity.WARN
    assert "'sleeper' of 't'" in found.detail


async def test_old_messages(connection: Connection) -> None:
    """A queue without a consumer for a day is named."""
    queue = await connection.fetchval("select queue_id from nuncius.create_queue('q')")
    await connection.execute("select nuncius.put_message($1, 0, 0, 0, 5, 'x'::text)", queue)
    assert (await findings(connection))["queues"].state is Severity.OK
    await connection.execute("update nuncius.messages set time_of_arrival = now() - interval '2 days'")
    found = (await findings(connection))["queues"]
    assert (found.state, found.detail) == (
        Severity.WARN,
        "1, the oldest message is in 'q' for more than a day",
    )


async def test_silence(connection: Connection) -> None:
    """Inactive actors and unreachable nodes are counted."""
    await connection.execute("insert into nuncius.activity values ('producer', 1, now() - interval '1 h')")
    await connection.execute(
        "insert into nuncius.nodes (host, port, roles, last_heard)"
        " values ('h', 1, '{}', now() - interval '1 h')"
    )
    found = await findings(connection)
    assert found["activity"].state is Severity.WARN
    assert found["cluster"].detail == "1 of 1 nodes unreachable"
