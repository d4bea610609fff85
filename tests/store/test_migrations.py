"""Migrations are applied once, in order, all or nothing, and agree with the schema for readers."""

import asyncio
import gzip
import subprocess
from pathlib import Path

import asyncpg
import pytest

from fix_store import other_database
from nuncius.store import migrations
from nuncius.store.driver import Connection
from nuncius.store.errors import DatabaseTooNew, StoreError, UnsupportedServer
from nuncius.store.server import pgbinaries
from store.catalogue import describe

SQL = Path(migrations.__file__).parent / "sql"
# What earlier versions of the program printed for an empty database, named by the version it then had.
# Compressed, because they are data: searches should find the procedures of today.
RELEASED = {
    int(file.name.removesuffix(".sql.gz")): gzip.decompress(file.read_bytes()).decode()
    for file in (Path(__file__).parent / "released").iterdir()
}


@pytest.fixture
def sql(tmp_path: Path) -> Path:
    """A tiny program of two migrations and two procedures that call each other's later file."""
    files = {
        "migrations/0001_first.sql": "create table nuncius.a (x int)",
        "migrations/0002_second.sql": "create table nuncius.b (y int);  -- ends in a comment",
        "procedures/10_double.sql": "create or replace function nuncius.double(x int) returns int"
        " language sql as $$ select nuncius.twice(x) $$",
        "procedures/20_twice.sql": "create or replace function nuncius.twice(x int) returns int"
        " language sql as $$ select 2 * x $$;\n\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


def psql(dsn: str, script: str) -> subprocess.CompletedProcess[str]:
    command = [pgbinaries.find().program("psql"), "--no-psqlrc", "--quiet", dsn]
    return subprocess.run(command, input=script, capture_output=True, text=True, check=False)


async def test_applies_everything_in_order(empty: Connection, sql: Path) -> None:
    """An empty database gets every migration and then the procedures."""
    assert await migrations.version(empty) is None
    assert await migrations.migrate(empty, sql=sql) == [1, 2]
    assert await migrations.version(empty) == migrations.newest(sql=sql) == 2
    assert await empty.fetchval("select nuncius.double(21)") == 42
    names = await empty.fetch("select name from nuncius.migrations order by version")
    assert [row["name"] for row in names] == ["first", "second"]


async def test_nothing_to_do(empty: Connection, sql: Path) -> None:
    """A database that is up to date is not touched."""
    await migrations.migrate(empty, sql=sql)
    await empty.execute("drop function nuncius.double")
    assert await migrations.migrate(empty, sql=sql) == []
    assert await empty.fetchval("select to_regproc('nuncius.double')") is None


async def test_applies_what_is_missing(empty: Connection, sql: Path) -> None:
    """An older database gets the newer migrations only, and all procedures again."""
    await migrations.migrate(empty, sql=sql)
    (sql / "migrations" / "0003_third.sql").write_text("drop function nuncius.twice;")
    assert await migrations.migrate(empty, sql=sql) == [3]
    assert await empty.fetchval("select nuncius.double(21)") == 42


async def test_all_or_nothing(empty: Connection, sql: Path) -> None:
    """When a migration fails, the database stays as it was."""
    (sql / "migrations" / "0003_broken.sql").write_text("create table nuncius.c (z nonsense);")
    with pytest.raises(asyncpg.UndefinedObjectError):
        await migrations.migrate(empty, sql=sql)
    assert await migrations.version(empty) is None
    assert await empty.fetchval("select to_regnamespace('nuncius')") is None


async def test_many_nodes_at_once(empty_dsn: str, sql: Path) -> None:
    """Of several nodes that migrate at once, one does the work and the others find it done."""
    connections = [await asyncpg.connect(empty_dsn) for _ in range(5)]
    applied = await asyncio.gather(*(migrations.migrate(c, sql=sql) for c in connections))
    assert sorted(applied) == [[], [], [], [], [1, 2]]
    for connection in connections:
        await connection.close()


async def test_newer_database(empty: Connection, sql: Path) -> None:
    """A database that a newer program migrated is refused with advice."""
    await migrations.migrate(empty, sql=sql)
    (sql / "migrations" / "0002_second.sql").unlink()
    with pytest.raises(DatabaseTooNew, match="version 2, this program knows 1: upgrade"):
        await migrations.migrate(empty, sql=sql)


def test_old_server() -> None:
    """A server older than PostgreSQL 15 is refused with advice."""
    with pytest.raises(UnsupportedServer, match="PostgreSQL 14; nuncius needs 15"):
        migrations.require_supported(14)
    migrations.require_supported(15)


async def test_another_encoding(empty: Connection, empty_dsn: str) -> None:
    """A database that cannot hold every name and key is refused, and is not touched."""
    await empty.execute(
        "create database latin encoding 'LATIN1' locale 'C' locale_provider libc template template0"
    )
    latin = await asyncpg.connect(other_database(empty_dsn, "latin"))
    try:
        with pytest.raises(UnsupportedServer, match="encoding LATIN1; nuncius needs UTF8"):
            await migrations.migrate(latin)
        assert await migrations.version(latin) is None
    finally:
        await latin.close()
        await empty.execute("drop database latin")


async def test_a_role_without_rights(empty: Connection, sql: Path) -> None:
    """Who may not migrate is told what is missing, and where to read on."""
    await empty.execute("drop role if exists stranger; create role stranger; set role stranger")
    with pytest.raises(StoreError, match=r"permission denied for database .*: docs/store.md says"):
        await migrations.migrate(empty, sql=sql)
    await empty.execute("reset role; drop role stranger")


async def test_printed_script(empty_dsn: str, empty: Connection, dsn: str) -> None:
    """The printed script, run by psql, has the effect of migrating."""
    assert psql(empty_dsn, migrations.pending_sql()).stderr == ""
    assert await migrations.version(empty) == migrations.newest()
    assert await migrations.migrate(empty) == []
    migrated = await asyncpg.connect(dsn)
    assert await describe(empty) == await describe(migrated)
    await migrated.close()


async def test_printed_script_for_another_version(empty_dsn: str, empty: Connection, sql: Path) -> None:
    """A script printed for one version changes nothing in a database at another."""
    script = migrations.pending_sql(after=1, sql=sql)
    assert "at version 1" in psql(empty_dsn, script).stderr
    assert await migrations.version(empty) is None
    assert "up to date" in migrations.pending_sql(after=2, sql=sql)


def test_released_migrations_stay() -> None:
    """A migration that some database has had is never edited."""
    for version, script in RELEASED.items():
        for file in sorted((SQL / "migrations").glob("*.sql"))[:version]:
            assert file.read_text().rstrip() in script, f"{file.name} in the script of version {version}"


@pytest.mark.parametrize("released", RELEASED)
async def test_an_older_database(empty_dsn: str, empty: Connection, dsn: str, released: int) -> None:
    """A database that an earlier program made becomes like a new one, and keeps what is in it."""
    assert psql(empty_dsn, RELEASED[released]).stderr == ""
    await empty.execute(
        "select nuncius.create_queue('jobs');"
        "select nuncius.put_message(1, 0, 0, 0, 3, 'sweep'), nuncius.put_message(1, 0, 0, 0, 9, 'fire');"
        "select nuncius.publish('news', 'first'), nuncius.publish('news', 'second');"
        "select nuncius.subscribe('news', 'me', 'earliest');"
    )
    assert await migrations.migrate(empty) == [*range(released + 1, migrations.newest() + 1)]
    new = await asyncpg.connect(dsn)
    assert await describe(empty) == await describe(new)
    await new.close()
    taken = "select message from nuncius.read_message_by_priority(1, 0, 0)"
    assert [await empty.fetchval(taken) for _ in range(3)] == [b"fire", b"sweep", None]
    assert await empty.fetchval("select nuncius.publish('news', 'third')") == 2
    assert await empty.fetchval("select nuncius.confirm('news', 'me', 3)")
    entries = await empty.fetch("select body from nuncius.fetch('news')")
    assert [row["body"] for row in entries] == [b"first", b"second", b"third"]


@pytest.mark.parametrize("released", RELEASED)
async def test_views_of_users(empty_dsn: str, empty: Connection, released: int) -> None:
    """A user's view on a procedure with renamed parameters goes on working, and stops no migration."""
    assert psql(empty_dsn, RELEASED[released]).stderr == ""
    await empty.execute("create view news as select body from nuncius.fetch('news')")
    await migrations.migrate(empty)
    await empty.execute("select nuncius.publish(topic => 'news', body => 'first')")
    assert await empty.fetchval("select body from news") == b"first"
    assert await empty.fetchval("select body from nuncius.fetch(topic => 'news')") == b"first"


@pytest.mark.parametrize(
    ("name", "message"),
    [("0004_gap.sql", "without gaps"), ("third.sql", "not named like")],
)
def test_misnamed_migrations(sql: Path, name: str, message: str) -> None:
    """Gaps in the numbers and other names are mistakes of ours, found at once."""
    (sql / "migrations" / name).touch()
    with pytest.raises(StoreError, match=message):
        migrations.newest(sql=sql)


def test_no_files(tmp_path: Path) -> None:
    """Without migrations the newest version is 0."""
    assert migrations.newest(sql=tmp_path) == 0


async def test_schema_for_readers_agrees(empty: Connection, connection: Connection) -> None:
    """Building from `tables/` and `procedures/` gives what the migrations give."""
    await empty.execute("set check_function_bodies = off; set search_path = nuncius, pg_catalog")
    await empty.execute("create schema if not exists nuncius")
    for folder in ("tables", "procedures"):
        for file in sorted((SQL / folder).glob("*.sql")):
            await empty.execute(file.read_text())
    read = {line for line in await describe(empty) if "migrations" not in line}
    migrated = {line for line in await describe(connection) if "migrations" not in line}
    assert sorted(read - migrated) == []
    assert sorted(migrated - read) == []


async def test_differences_are_seen(empty: Connection) -> None:
    """The comparison sees columns, defaults, options, indexes, functions and comments."""
    await empty.execute("create schema nuncius; create table nuncius.t (a int, b text)")
    seen = {tuple(await describe(empty))}
    changes = [
        "alter table nuncius.t alter a set default 1",
        "alter table nuncius.t alter a set not null",
        "alter table nuncius.t alter b set storage external",
        "alter table nuncius.t set (fillfactor = 50)",
        "alter table nuncius.t set (toast.autovacuum_enabled = off)",
        "alter table nuncius.t add check (a > 0)",
        "create index on nuncius.t (a desc)",
        "create function nuncius.f() returns int language sql as 'select 1'",
        "create or replace function nuncius.f() returns int language sql as 'select 2'",
        "comment on function nuncius.f is 'two'",
        "comment on column nuncius.t.a is 'a'",
        "revoke execute on function nuncius.f from public",
    ]
    for number, change in enumerate(changes, start=2):
        await empty.execute(change)
        seen.add(tuple(await describe(empty)))
        assert len(seen) == number, change
