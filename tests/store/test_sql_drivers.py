"""Calls from the drivers that applications use: what was sent is what is stored, or the call is refused."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Json, Jsonb

from store import sql_drivers
from store.sql_drivers import Driver, Refused, Value

PYTHON: dict[str, Callable[[str], AbstractContextManager[Driver]]] = {
    "psycopg": lambda dsn: sql_drivers.psycopg_with(dsn, psycopg.Cursor),
    "psycopg-binary": lambda dsn: sql_drivers.psycopg_with(dsn, psycopg.Cursor, binary=True),
    "psycopg-client": lambda dsn: sql_drivers.psycopg_with(dsn, psycopg.ClientCursor),
    "asyncpg": sql_drivers.asyncpg_driver,
    "pg8000": sql_drivers.pg8000_dbapi,
    "pg8000-native": sql_drivers.pg8000_native,
    "node": sql_drivers.node_postgres,
}
PGX = ["cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"]
# These send bytes as text in PostgreSQL's notation, and name no type.
WITHOUT_TYPES = {"pg8000", "pg8000-native", "pgx-exec", "pgx-simple_protocol"}

BYTES = [b"\x00\xff\x01", b"plain", "grüße".encode(), b'{"a": "b\\\\c\\n"}', b"\\x00ff01", b""]
TEXTS = ["plain", "grüße 🕊", '{"a": "b\\\\c\\n\\""}', "\\\\x \\001", "\\x0", "\\xyz", "\\x 00", "x00ff", ""]
LIKE_BYTES = ["\\x00ff01", "\\x00FF01", "\\x"]
FOR_TEXT = {
    "publish": "select nuncius.publish('news', {})",
    "put_message": "select nuncius.put_message(1, 0, 0, 0, 5, {})",
    "put_messages": "select nuncius.put_messages('{{1}}', 0, 0, 0, 5, {})",
}


@pytest.fixture(scope="session")
def pgx_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sql_drivers.build_pgx(tmp_path_factory.mktemp("pgx"))


@pytest.fixture(params=[*PYTHON, *(f"pgx-{mode}" for mode in PGX)])
def driver(request: pytest.FixtureRequest, dsn: str) -> Iterator[Driver]:
    """A driver, connected to a fresh database."""
    if request.param in PYTHON:
        connected = PYTHON[request.param](dsn)
    else:
        program = request.getfixturevalue("pgx_program")
        connected = sql_drivers.pgx(program, dsn, request.param.removeprefix("pgx-"))
    with connected as opened:
        yield opened


@pytest.fixture
def store(dsn: str) -> Iterator[psycopg.Connection]:
    """A connection that looks into the store, which has a queue with the id 1."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select nuncius.create_queue('jobs')")
        yield connection


def taken(store: psycopg.Connection) -> list[bytes]:
    """Removes and returns the bodies of everything in the store."""
    rows = store.execute(
        "with e as (delete from nuncius.entries returning body),"
        " m as (delete from nuncius.messages returning message)"
        " select body from e union all select message from m"
    )
    return [body for (body,) in rows]


def for_bytes(name: str) -> str:
    return FOR_TEXT[name].replace(f"{name}(", f"{name}_bytes(")


@pytest.mark.parametrize("name", FOR_TEXT)
def test_bytes(driver: Driver, store: psycopg.Connection, name: str) -> None:
    """Every driver stores bytes as they are with the call for bytes, and with a cast."""
    for call, body in itertools.product(
        (for_bytes(name), FOR_TEXT[name].replace("{})", "{}::bytea)")), BYTES
    ):
        driver(call, body)
        assert taken(store) == [body], (call, body)


@pytest.mark.parametrize("name", FOR_TEXT)
def test_text(driver: Driver, store: psycopg.Connection, name: str) -> None:
    """Every driver stores text as UTF-8, with backslashes and all."""
    for body in TEXTS:
        driver(FOR_TEXT[name], body)
        assert taken(store) == [body.encode()], body


@pytest.mark.parametrize("name", FOR_TEXT)
def test_text_that_looks_like_bytes(driver: Driver, store: psycopg.Connection, name: str) -> None:
    """Text in PostgreSQL's notation of bytes is refused with a hint, and the hint works."""
    for body in LIKE_BYTES:
        with pytest.raises(Refused, match="not clear whether this is text or bytes") as refused:
            driver(FOR_TEXT[name], body)
        assert f"nuncius.{name}_bytes(" in refused.value.hint
        assert taken(store) == []
        driver(for_bytes(name).replace("{})", "nuncius.as_bytes({}))"), body)
        assert taken(store) == [body.encode()]


@pytest.mark.parametrize("name", FOR_TEXT)
def test_bytes_for_text(
    driver: Driver, store: psycopg.Connection, name: str, request: pytest.FixtureRequest
) -> None:
    """Bytes that are sent where text is expected are stored as they are or refused; a driver without types
    learns the right call."""
    without_types = request.node.callspec.params["driver"] in WITHOUT_TYPES
    for body in BYTES:
        hint = None
        try:
            driver(FOR_TEXT[name], body)
        except Refused as refused:
            hint = refused.hint
        assert taken(store) == ([body] if hint is None else [])
        if without_types:
            assert hint is not None
            assert f"nuncius.{name}_bytes(" in hint


def test_names_of_arguments(driver: Driver, store: psycopg.Connection) -> None:
    """Arguments may be given by name."""
    headers: Value = '{"lang": "de"}'
    driver(
        "select nuncius.publish("
        "topic => {}, body => {}, key => {}, headers => {}, publisher => {}, count => {})",
        *("news", "grüße", "k", headers, "ann", 7),
    )
    driver("select nuncius.publish_bytes(topic => {}, body => {}, headers => {})", "news", b"\xff", headers)
    rows = store.execute(
        "select body, key, headers, publisher_count from nuncius.entries order by entry_offset"
    )
    assert rows.fetchall() == [
        ("grüße".encode(), "k", {"lang": "de"}, 7),
        (b"\xff", None, {"lang": "de"}, None),
    ]


@pytest.mark.parametrize("name", FOR_TEXT)
def test_json(driver: Driver, store: psycopg.Connection, name: str) -> None:
    """Values of the types json and jsonb are stored as the text that PostgreSQL shows of them."""
    body = '{"b": "gr\\u00fc\\\\n",  "a": 1}'
    driver(FOR_TEXT[name].replace("{})", "{}::text::json)"), body)
    assert taken(store) == [body.encode()]
    driver(FOR_TEXT[name].replace("{})", "{}::text::jsonb)"), body)
    (stored,) = taken(store)
    assert stored == '{"a": 1, "b": "grü\\\\n"}'.encode()


@pytest.mark.parametrize("kind", [Json, Jsonb])
def test_json_of_psycopg(store: psycopg.Connection, kind: type[Json] | type[Jsonb]) -> None:
    """JSON as psycopg sends it, with its type, is accepted."""
    store.execute("select nuncius.publish('news', %s)", [kind({"a": ["ü", "\\"]})])
    (stored,) = taken(store)
    assert json.loads(stored) == {"a": ["ü", "\\"]}


def test_literals(store: psycopg.Connection) -> None:
    """Literals in SQL are text, whatever they contain."""
    store.execute(r"""select nuncius.publish('news', '{"a": "b\\c\n\""}')""")
    assert taken(store) == [rb'{"a": "b\\c\n\""}']
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        store.execute(r"select nuncius.publish('news', '\x00ff01')")
    store.execute(r"select nuncius.publish_bytes('news', '\x00ff01')")
    assert taken(store) == [b"\x00\xff\x01"]
