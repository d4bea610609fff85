"""Migrations: bring a database to the schema this program knows.

`sql/migrations/` holds numbered changes of tables, each applied once. `sql/procedures/` holds
functions that can be replaced at any time; all of them are created again at the end of every run, so
each has one readable file that is its source. `sql/tables/` is the current schema for readers, and a
test keeps it in agreement with the migrations.

`migrate` and `pending_sql` share one script, so an administrator reviews exactly what runs.
"""

import importlib.resources
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources.abc import Traversable

import asyncpg

from nuncius.store.driver import Connection
from nuncius.store.errors import DatabaseTooNew, StoreError, UnsupportedServer

OLDEST_SERVER = 15
LOCK = 0x6E756E63697573  # "nuncius": no other program takes this advisory lock by accident

_FILE_NAME = re.compile(r"(\d{4})_(\w+)\.sql")
_PROLOGUE = f"""\
select pg_advisory_xact_lock({LOCK});
set local client_min_messages = warning;
set local search_path = nuncius, pg_catalog;
-- procedures may call one another, whatever the order of their files
set local check_function_bodies = off;
create schema if not exists nuncius;
create table if not exists nuncius.migrations (
    version int primary key,
    name text not null,
    applied_at timestamptz not null default now()
);
comment on table nuncius.migrations is 'The numbered changes this database has had.';
"""
_RECORD = """\
insert into nuncius.migrations (version, name) values ({0.version}, '{0.name}');
"""
# Stops a printed script if the database's version has changed since it was printed.
_GUARD = """\
do $guard$
begin
    if (select coalesce(max(version), 0) from nuncius.migrations) <> {0} then
        raise exception 'this script is for a nuncius database at version {0}';
    end if;
end
$guard$;
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered change."""

    version: int
    name: str
    sql: str


async def migrate(connection: Connection, *, sql: Traversable | None = None) -> list[int]:
    """Apply the missing migrations, all or none, and return their numbers.

    Safe to call from many nodes at once: the first does the work, the others find it done. When the
    database is up to date, nothing is changed and no lock is taken.
    """
    require_supported(connection.get_server_version().major)
    require_unicode(await connection.fetchval("show server_encoding"))
    try:
        if await current(connection, sql=sql) == newest(sql=sql):
            return []
        async with connection.transaction():
            await connection.execute(_PROLOGUE)
            after = await current(connection, sql=sql)  # again: another node may have migrated meanwhile
            pending = _after(after, sql)
            if pending:
                await connection.execute("".join(_steps(pending, sql)))
            return [migration.version for migration in pending]
    except asyncpg.InsufficientPrivilegeError as error:
        raise StoreError(f"{error}: docs/store.md says what a node's role needs") from error


def require_unicode(encoding: str) -> None:
    """Refuse a database that cannot hold every name and key."""
    if encoding != "UTF8":
        raise UnsupportedServer(
            f"this database has the encoding {encoding}; nuncius needs UTF8: "
            "make one with `createdb --encoding UTF8 --template template0`"
        )


def require_supported(major: int) -> None:
    """Refuse a server whose major version is too old."""
    if major < OLDEST_SERVER:
        raise UnsupportedServer(
            f"this server is PostgreSQL {major}; nuncius needs {OLDEST_SERVER} or newer: "
            "upgrade it, or let nuncius run its own by leaving out --store"
        )


async def version(connection: Connection) -> int | None:
    """Return the number of the last migration of a database; None if it has no schema of ours."""
    if await connection.fetchval("select to_regclass('nuncius.migrations')") is None:
        return None
    newest_applied: int | None = await connection.fetchval("select max(version) from nuncius.migrations")
    return newest_applied


def newest(*, sql: Traversable | None = None) -> int:
    """Return the number of the newest migration this program knows."""
    return max((migration.version for migration in _migrations(sql)), default=0)


def pending_sql(after: int = 0, *, sql: Traversable | None = None) -> str:
    """Return a script for psql with the effect of `migrate` on a database at version `after`."""
    pending = _after(after, sql)
    if not pending:
        return f"-- A database at version {after} is up to date.\n"
    parts = [
        f"-- Brings a nuncius database from version {after} to {pending[-1].version}.\n",
        "begin;\n",
        _PROLOGUE,
        _GUARD.format(after),
        *_steps(pending, sql),
        "commit;\n",
    ]
    return "".join(parts)


async def current(connection: Connection, *, sql: Traversable | None = None) -> int:
    """Return the database's version, 0 if it has none. Refuse one that is newer than this program's."""
    found = await version(connection) or 0
    if found > newest(sql=sql):
        raise DatabaseTooNew(
            f"the database is at version {found}, this program knows {newest(sql=sql)}: "
            "upgrade this program, or use the one that migrated the database"
        )
    return found


def _after(after: int, sql: Traversable | None) -> list[Migration]:
    return [migration for migration in _migrations(sql) if migration.version > after]


def _steps(pending: list[Migration], sql: Traversable | None) -> Iterator[str]:
    for migration in pending:
        yield f"\n-- migrations/{migration.version:04}_{migration.name}.sql\n"
        yield _terminated(migration.sql)
        yield _RECORD.format(migration)
    for procedure in _sql_files("procedures", sql):
        yield f"\n-- procedures/{procedure.name}\n"
        yield _terminated(procedure.read_text("utf-8"))


def _terminated(sql: str) -> str:
    """Return the text of a file with a semicolon at the end. An empty statement does no harm."""
    return sql.rstrip() + "\n;\n"


def _migrations(sql: Traversable | None) -> list[Migration]:
    found = []
    for file in _sql_files("migrations", sql):
        named = _FILE_NAME.fullmatch(file.name)
        if named is None:
            raise StoreError(f"migrations/{file.name} is not named like 0001_words.sql")
        found.append(Migration(int(named[1]), named[2], file.read_text("utf-8")))
    numbers = [migration.version for migration in found]
    if numbers != list(range(1, len(found) + 1)):
        raise StoreError(f"migrations must be numbered from 1 without gaps, not {numbers}")
    return found


def _sql_files(folder: str, sql: Traversable | None) -> list[Traversable]:
    """Return the SQL files of a folder in name order, from a checkout or a wheel."""
    root = sql or importlib.resources.files("nuncius.store") / "sql"
    try:
        files = list((root / folder).iterdir())
    except FileNotFoundError:
        return []
    return sorted((file for file in files if file.name.endswith(".sql")), key=lambda f: f.name)
