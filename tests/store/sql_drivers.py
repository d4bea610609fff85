"""Drivers of PostgreSQL as an application uses them, each with its own way to send a parameter."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pg8000.dbapi
import pg8000.native
import psycopg
import pytest

SOURCES = Path(__file__).parent / "drivers"
MODULES = Path(os.environ.get("NUNCIUS_NODE_MODULES", Path(__file__).parents[2] / ".node" / "node_modules"))
SECONDS = 300

Value = str | bytes | int


class Refused(Exception):
    """The server or the driver refused a call."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint or ""


class Driver(Protocol):
    def __call__(self, sql: str, *values: Value) -> None:
        """Runs a statement whose parameters stand as {}; raises Refused."""


def numbered(sql: str) -> str:
    """The statement with $1, $2 ... as parameters."""
    return sql.format(*(f"${n}" for n in range(1, sql.count("{}") + 1)))


def _address(dsn: str) -> tuple[str, str, str]:
    """Folder of the socket, database and user."""
    parts = urlsplit(dsn)
    return parse_qs(parts.query)["host"][0], parts.path.lstrip("/"), parts.username or ""


@contextmanager
def psycopg_with(
    dsn: str, cursor: type[psycopg.Cursor[Any]], *, binary: bool | None = None
) -> Iterator[Driver]:
    with psycopg.connect(dsn, autocommit=True, cursor_factory=cursor) as connection:

        def call(sql: str, *values: Value) -> None:
            try:
                connection.cursor().execute(sql.format(*["%s"] * len(values)), values, binary=binary)
            except psycopg.Error as error:
                raise Refused(str(error), error.diag.message_hint) from error

        yield call


@contextmanager
def asyncpg_driver(dsn: str) -> Iterator[Driver]:
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(dsn))

        def call(sql: str, *values: Value) -> None:
            try:
                runner.run(connection.fetch(numbered(sql), *values))
            except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                raise Refused(str(error), getattr(error, "hint", None)) from error

        yield call
        runner.run(connection.close())


@contextmanager
def pg8000_native(dsn: str) -> Iterator[Driver]:
    folder, database, user = _address(dsn)
    connection = pg8000.native.Connection(user, database=database, unix_sock=f"{folder}/.s.PGSQL.5432")

    def call(sql: str, *values: Value) -> None:
        named = {f"v{n}": value for n, value in enumerate(values)}
        try:
            connection.run(sql.format(*(f":{name}" for name in named)), **named)
        except pg8000.native.DatabaseError as error:
            raise Refused(error.args[0]["M"], error.args[0].get("H")) from error

    yield call
    connection.close()


@contextmanager
def pg8000_dbapi(dsn: str) -> Iterator[Driver]:
    folder, database, user = _address(dsn)
    connection = pg8000.dbapi.connect(user, database=database, unix_sock=f"{folder}/.s.PGSQL.5432")
    connection.autocommit = True

    def call(sql: str, *values: Value) -> None:
        try:
            connection.cursor().execute(sql.format(*["%s"] * len(values)), values)
        except pg8000.dbapi.DatabaseError as error:
            raise Refused(error.args[0]["M"], error.args[0].get("H")) from error

    yield call
    connection.close()


@contextmanager
def _peer(command: Sequence[str | Path], **fixed: str) -> Iterator[Driver]:
    """A program in another language that runs a statement a line."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def call(sql: str, *values: Value) -> None:
            sent = [{"bytes": value.hex()} if isinstance(value, bytes) else value for value in values]
            print(json.dumps({"sql": numbered(sql), "args": sent, **fixed}), file=asked, flush=True)
            answer = json.loads(answers.readline())
            if answer:
                raise Refused(answer["error"], answer.get("hint"))

        yield call
        asked.close()


def build_pgx(folder: Path) -> Path:
    """Builds the program with pgx, or skips the test where Go or pgx cannot be had."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    options: dict[str, Any] = {
        "cwd": SOURCES / "pgx",
        "env": os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "", "CGO_ENABLED": "0"},
        "timeout": SECONDS,
        "capture_output": True,
        "text": True,
    }
    fetched = subprocess.run([go, "mod", "download"], check=False, **options)
    if fetched.returncode != 0:
        pytest.skip(f"pgx cannot be fetched: {fetched.stderr.strip()}")
    program = folder / "pgx"
    built = subprocess.run([go, "build", "-o", program, "."], check=False, **options)
    assert built.returncode == 0, built.stderr
    return program


@contextmanager
def pgx(program: Path, dsn: str, mode: str) -> Iterator[Driver]:
    with _peer([program, dsn], mode=mode) as driver:
        yield driver


@contextmanager
def node_postgres(dsn: str) -> Iterator[Driver]:
    node = shutil.which("node")
    if node is None or not (MODULES / "pg").exists():
        pytest.skip("Node.js or its package pg is not installed")
    with _peer([node, SOURCES / "node.cjs", MODULES.parent, *_address(dsn)]) as driver:
        yield driver
