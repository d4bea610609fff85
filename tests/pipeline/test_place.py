import asyncio
import threading
from pathlib import Path

import asyncpg
import pytest

from fix_store import other_database
from nuncius.pipeline import place
from nuncius.pipeline.errors import InvalidOption
from nuncius.store import environment
from nuncius.store.address import shown
from nuncius.store.errors import StoreUnavailable
from nuncius.store.server import embedded
from nuncius.store.server.embedded import EmbeddedServer


def test_the_store_is_an_option_whatever_its_case(dsn: str) -> None:
    """Options are case-insensitive, as everywhere in Spark."""
    assert place.store_dsn({"STORE": dsn}) == dsn


def test_the_environment_names_the_store_where_no_option_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option is stronger than NUNCIUS_STORE, and an empty one counts as none."""
    monkeypatch.setenv(environment.STORE, "postgresql://here/a")
    assert place.store_dsn({"store": ""}) == "postgresql://here/a"
    assert place.store_dsn({"store": "postgresql://there/b"}) == "postgresql://there/b"


def test_a_data_directory_stands_for_its_running_server(server: EmbeddedServer, data_dir: Path) -> None:
    """With a data directory, the address is that of the embedded server in it, which must run."""
    assert place.store_dsn({"dataDir": str(server.data_dir)}) == server.dsn
    with pytest.raises(InvalidOption, match="no server runs in the data directory"):
        place.store_dsn({"dataDir": str(data_dir)})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "which store"),
        ({"store": "localhost"}, "begins with postgresql://"),
        ({"store": "postgresql://a", "dataDir": "b"}, "not both"),
    ],
)
def test_what_names_no_store_is_refused(
    options: dict[str, str], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The complaint says what to give."""
    monkeypatch.delenv(environment.STORE, raising=False)
    with pytest.raises(InvalidOption, match=complaint):
        place.store_dsn(options)


def test_a_connection_answers(dsn: str) -> None:
    """Rows, the first row, the first value, and what a statement did."""
    with place.connect(dsn) as db:
        assert [row["n"] for row in db.rows("select n from generate_series(1, $1) n", 3)] == [1, 2, 3]
        assert db.row("select 1 where false") is None
        assert db.value("select $1::text", "a") == "a"
        assert db.execute("create table a (); drop table a") == "DROP TABLE"
        with pytest.raises(asyncpg.UndefinedTableError):
            db.rows("select from nothing")
        assert db.value("select application_name from pg_stat_activity where pid = pg_backend_pid()") == (
            place.APPLICATION
        )


async def test_a_connection_works_where_an_event_loop_runs(dsn: str) -> None:
    """Notebooks run one in the thread of their cells."""
    assert asyncio.get_running_loop().is_running()
    with place.connect(dsn) as db:
        assert db.value("select 1") == 1


def test_connections_leave_no_threads_behind(dsn: str) -> None:
    """The thread of a connection ends with it, even when the connection was broken."""
    before = threading.active_count()
    with place.connect(dsn) as db:
        with place.connect(dsn) as other:
            other.value("select pg_terminate_backend($1)", db.value("select pg_backend_pid()"))
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            db.value("select 1")
    assert threading.active_count() == before


def test_a_store_that_does_not_answer_is_named_without_its_password(dsn: str) -> None:
    """The message has the address, and no secret."""
    unknown = other_database(dsn, "nowhere")
    with pytest.raises(StoreUnavailable, match="nowhere"), place.connect(unknown):
        pass
    assert shown("postgresql://me:secret@host/a?x=1") == "postgresql://me:***@host/a?x=1"
    assert shown("postgresql:///a?user=me&password=secret&x=1") == "postgresql:///a?user=me&password=***&x=1"
    assert embedded.DATABASE in shown(dsn.replace("test", embedded.DATABASE))


def test_an_address_that_makes_no_sense_is_refused() -> None:
    """A port that is no number is the address's fault, not the store's."""
    with pytest.raises(InvalidOption, match="cannot be understood"), place.connect("postgresql://host:x/a"):
        pass
