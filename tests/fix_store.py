"""Fixtures for the store: one embedded server a run, one fresh database a test."""

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncpg
import psycopg
import pytest
from asyncpg.connection import Connection as AsyncpgConnection

from nuncius.store import migrations
from nuncius.store.driver import Connection
from nuncius.store.server import embedded
from nuncius.store.server.embedded import EmbeddedServer

TEMPLATE = "nuncius_template"
# A file system in memory, where there is one: databases come and go six times as fast.
MEMORY = Path("/dev/shm")  # noqa: S108  (only the place where folders are made)
_numbers = itertools.count(1)
FIRST_OWN_TYPE = 16384  # types below this number come with PostgreSQL and are the same in every database


async def _execute(dsn: str, statement: str) -> None:
    # No test's own limit ends a wait in another thread: so this one has an end by itself.
    connection = await asyncpg.connect(dsn, command_timeout=300)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _migrate(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await migrations.migrate(connection)
    finally:
        await connection.close()


def execute(dsn: str, statement: str) -> None:
    """Runs SQL from synchronous code; in a thread, so that no test's event loop is disturbed."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _execute(dsn, statement)).result()


def other_database(dsn: str, name: str) -> str:
    """The same server, another database."""
    before, after = dsn.split("?", 1)
    return f"{before.rsplit('/', 1)[0]}/{name}?{after}"


def let_in(dsn: str, *, may: bool) -> None:
    """Says whether a database takes new connections."""
    name = dsn.split("?", 1)[0].rsplit("/", 1)[1]
    execute(other_database(dsn, "postgres"), f"alter database {name} allow_connections {may}")


def new_folder() -> Path:
    """A folder for data, with a path that is short enough for a socket."""
    return Path(tempfile.mkdtemp(prefix="nun-", dir=MEMORY if MEMORY.is_dir() else None))


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data directory; whatever server runs in it is stopped afterwards."""
    parent = new_folder()
    directory = parent / "data"
    try:
        yield directory
    finally:
        embedded.stop(directory)
        shutil.rmtree(parent)


@pytest.fixture(scope="session", autouse=True)
def types_are_known() -> Iterator[None]:
    """Let asyncpg describe PostgreSQL's own types once a run, not once a connection.

    The query takes as long as all else that a short test asks the server.
    """
    described: dict[frozenset[int], Any] = {}
    describe = AsyncpgConnection._introspect_types  # type: ignore[attr-defined]  # noqa: SLF001

    async def describe_once(self: Any, numbers: Any, timeout: Any) -> Any:
        wanted = frozenset(numbers)
        if wanted not in described:
            answer = await describe(self, numbers, timeout)
            if max(wanted) >= FIRST_OWN_TYPE:
                return answer
            described[wanted] = answer[0], SimpleNamespace(name="described before")
        return described[wanted]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AsyncpgConnection, "_introspect_types", describe_once)
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """The embedded server all tests share. Tests that kill servers start their own."""
    parent = new_folder()
    try:
        started = embedded.start(parent / "data")
        # It is never killed, so nothing needs to survive that, and databases come and go faster.
        for setting in ("fsync", "full_page_writes"):
            execute(started.dsn, f"alter system set {setting} = off")
        execute(started.dsn, "select pg_reload_conf()")
        yield started
    finally:
        embedded.stop(parent / "data")
        shutil.rmtree(parent)


@pytest.fixture(scope="session")
def template(server: EmbeddedServer) -> str:
    """The name of a migrated database to copy: far faster than migrating for every test."""
    execute(server.dsn, f"create database {TEMPLATE}")
    with ThreadPoolExecutor(1) as thread:
        migrating = _migrate(other_database(server.dsn, TEMPLATE))
        thread.submit(asyncio.run, migrating).result()
    return TEMPLATE


@pytest.fixture(scope="session")
def admin(server: EmbeddedServer) -> Iterator[psycopg.Connection]:
    """A connection that creates and drops databases; one for each test would take longer than the copy."""
    with psycopg.connect(server.dsn, autocommit=True, prepare_threshold=None) as connection:
        yield connection


Databases = Callable[[str], AbstractContextManager[str]]


@pytest.fixture(scope="session")
def database_from(server: EmbeddedServer, admin: psycopg.Connection) -> Databases:
    """Copies a template; the copy, given by its address, is dropped afterwards."""

    @contextmanager
    def copy(template: str) -> Iterator[str]:
        name = f"test_{next(_numbers)}"
        admin.execute(f"create database {name} template {template} strategy file_copy".encode())
        yield other_database(server.dsn, name)
        admin.execute(f"drop database {name} with (force)".encode())

    return copy


@pytest.fixture
def empty_dsn(database_from: Databases) -> Iterator[str]:
    """The address of a fresh database with nothing in it."""
    with database_from("template0") as made:
        yield made


@pytest.fixture
def dsn(database_from: Databases, template: str) -> Iterator[str]:
    """The address of a fresh, migrated database."""
    with database_from(template) as made:
        yield made


@pytest.fixture
def away(database_from: Databases, template: str) -> Iterator[str]:
    """The address of another store."""
    with database_from(template) as made:
        yield made


@pytest.fixture(scope="module")
def module_dsn(database_from: Databases, template: str) -> Iterator[str]:
    """The address of a migrated database that the tests of a module share."""
    with database_from(template) as made:
        yield made


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[Connection]:
    """A connection to a fresh, migrated database."""
    opened = await asyncpg.connect(dsn)
    yield opened
    await opened.close()


@pytest.fixture
async def empty(empty_dsn: str) -> AsyncIterator[Connection]:
    """A connection to a fresh database with nothing in it."""
    opened = await asyncpg.connect(empty_dsn)
    yield opened
    await opened.close()
