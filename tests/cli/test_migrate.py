"""`nuncius migrate` brings a database up to date, or prints how."""

import asyncio
import json
from pathlib import Path

import asyncpg

from cli.commands import nuncius
from nuncius.store import migrations
from nuncius.store.driver import Connection
from nuncius.store.server import embedded


async def test_apply(empty_dsn: str) -> None:
    """The first run applies everything and says so, the second finds nothing to do."""
    first = await asyncio.to_thread(nuncius, "migrate", "--store", empty_dsn)
    assert (first.returncode, first.stderr) == (0, "")
    newest = migrations.newest()
    assert first.stdout.startswith("Applied")
    assert first.stdout.endswith(f"the schema is now at version {newest}.\n")
    second = await asyncio.to_thread(nuncius, "migrate", "--store", empty_dsn)
    assert second.stdout == f"The schema is up to date, at version {newest}.\n"
    third = await asyncio.to_thread(nuncius, "migrate", "--store", empty_dsn, "-o", "json")
    assert json.loads(third.stdout) == {"applied": [], "version": newest}
    connection = await asyncpg.connect(empty_dsn)
    assert await migrations.version(connection) == newest
    await connection.close()


async def test_print_everything(empty: Connection) -> None:
    """Without a store --sql prints the whole script, which makes the schema when somebody runs it."""
    printed = await asyncio.to_thread(nuncius, "migrate", "--sql")
    assert printed.returncode == 0
    await empty.execute(printed.stdout)
    assert await migrations.version(empty) == migrations.newest()


async def test_print_what_is_pending(empty_dsn: str, empty: Connection) -> None:
    """With a store --sql prints what that store lacks, and changes nothing."""
    printed = await asyncio.to_thread(nuncius, "migrate", "--sql", "--store", empty_dsn)
    assert await migrations.version(empty) is None
    await empty.execute(printed.stdout)
    again = await asyncio.to_thread(nuncius, "migrate", "--sql", "--store", empty_dsn)
    assert again.stdout == f"-- A database at version {migrations.newest()} is up to date.\n"


def test_embedded(data_dir: Path) -> None:
    """A data directory's own server is started for the occasion and stopped again."""
    assert nuncius("migrate", "--sql", "--data-dir", str(data_dir)).stdout.startswith("-- Brings")
    assert not data_dir.exists()
    done = nuncius("migrate", "--data-dir", str(data_dir))
    assert done.stdout.startswith("Applied")
    assert embedded.running(data_dir) is None
    again = nuncius("migrate", "--sql", "--data-dir", str(data_dir))
    assert again.stdout.endswith("is up to date.\n")


async def test_a_newer_database(dsn: str, connection: Connection) -> None:
    """A database of a newer program is refused in one line, printing or not."""
    await connection.execute("insert into nuncius.migrations (version, name) values (99, 'x')")
    for options in ([], ["--sql"]):
        done = await asyncio.to_thread(nuncius, "migrate", "--store", dsn, *options)
        assert done.returncode == 1
        assert done.stderr.startswith("nuncius: the database is at version 99, this program knows")
        assert done.stderr.count("\n") == 1


def test_no_store() -> None:
    """A database that cannot be reached is one line."""
    done = nuncius("migrate", "--store", "postgresql://nobody@127.0.0.1:1/none")
    assert done.returncode == 1
    assert done.stderr.startswith("nuncius: cannot connect to the store")
    assert done.stderr.count("\n") == 1


def test_wrong_use(tmp_path: Path) -> None:
    """A store is named in one way."""
    done = nuncius("migrate", "--store", "x", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert "not both" in done.stderr
