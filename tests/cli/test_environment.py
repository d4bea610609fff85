"""One set of variables says where things are, for every command; an option goes before its variable."""

import json
import subprocess
from pathlib import Path

import pytest

from cli.commands import CLOSED, NUNCIUS, node, nuncius
from nuncius.client import Client
from nuncius.pipeline import place
from nuncius.store import environment
from nuncius.store.driver import Connection
from nuncius.store.environment import DATA_DIR, STORE
from nuncius.store.server import embedded

DOORS = ["--telesto-port=0", *CLOSED]


def started(*arguments: str) -> str:
    """The store of a node that was started, from its line on a leash."""
    process = subprocess.Popen(
        [*NUNCIUS, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    _, said = process.communicate()
    assert line, said
    return str(json.loads(line)["store"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--on-leash", *DOORS],
        ["node", "--on-leash", "--role=writer", "--http-port=0"],
        ["tribbler", "-on-leash", "-port=0"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_nodes_go_by_the_store(dsn: str, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    """A node starts on the store that the environment names, and starts no PostgreSQL of its own."""
    monkeypatch.setenv(STORE, dsn)
    assert started(*arguments) == dsn


def test_messages_are_in_that_store(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that reads by the same variable finds what clients of the node have published."""
    monkeypatch.setenv(STORE, dsn)
    with node() as up, Client(up.url) as client:
        client.publish("news", "hello")
    with place.connect(place.store_dsn({})) as db:
        assert db.value("select body from nuncius.fetch('news')") == b"hello"


async def test_commands_go_by_the_store(
    empty_dsn: str, empty: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So do the commands that look after a store."""
    monkeypatch.setenv(STORE, empty_dsn)
    assert "create table nuncius" in nuncius("migrate", "--sql").stdout
    assert "Applied" in nuncius("migrate").stdout
    assert await empty.fetchval("select to_regclass('nuncius.topics')") is not None
    assert nuncius("pipeline", "runs").stdout == "no job has run yet\n"
    found = json.loads(nuncius("doctor", "-o", "json").stdout)
    assert "schema" in [finding["check"] for finding in found]
    assert "data directory" not in [finding["check"] for finding in found]


def test_the_console_goes_by_the_store(dsn: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The console shows the store that the environment names, and starts no PostgreSQL of its own."""
    monkeypatch.setenv(STORE, dsn)
    monkeypatch.setenv(DATA_DIR, str(data_dir))
    console = subprocess.Popen(
        [*NUNCIUS, "console", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert console.stdout is not None
    try:
        assert "The console is at" in console.stdout.readline()
    finally:
        console.terminate()
        said = console.communicate()[1]
    assert f"the store is at {dsn}" in said
    assert not data_dir.exists()


def test_an_option_goes_before_it(data_dir: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An option wins over the environment, and a data directory says so."""
    monkeypatch.setenv(STORE, "postgresql://me:canary@nowhere/other")
    assert started("up", "--on-leash", *DOORS, f"--store={dsn}") == dsn
    with node(f"--data-dir={data_dir}") as up:
        assert str(data_dir) in up.dsn or embedded.running(data_dir) is not None
        code, said = up.stop()
    assert code == 0
    assert f"--data-dir goes before ${STORE}: the store is in {data_dir}" in said
    assert "postgresql://me:***@nowhere/other" in said


def test_an_address_goes_before_a_directory(
    dsn: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the environment names both, the address wins over the directory, and the node says so."""
    monkeypatch.setenv(STORE, dsn)
    monkeypatch.setenv(DATA_DIR, str(data_dir))
    with node() as up:
        assert up.dsn == dsn
        assert f"${STORE} goes before ${DATA_DIR}" in up.stop()[1]
    assert not data_dir.exists()


def test_an_empty_variable(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable without a value counts as not set."""
    monkeypatch.setenv(STORE, "")
    monkeypatch.setenv(DATA_DIR, str(data_dir))
    assert started("up", "--on-leash", *DOORS)
    assert data_dir.exists()


def test_spark_finds_the_embedded_server(
    monkeypatch: pytest.MonkeyPatch, server: embedded.EmbeddedServer
) -> None:
    """Without an address, Spark goes by the data directory that `up` uses."""
    monkeypatch.delenv(STORE, raising=False)
    monkeypatch.setenv(DATA_DIR, str(server.data_dir))
    assert place.store_dsn({}) == server.dsn


def test_doctor_shows_them(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`nuncius doctor` shows the variables that are set, without passwords."""
    for name in environment.NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(STORE, dsn)
    monkeypatch.setenv(environment.URL, "nuncius://127.0.0.1:1")
    monkeypatch.setenv(environment.HTTP, "http://me:canary@127.0.0.1:1")
    done = nuncius("doctor", "-o", "json")
    shown = [found["detail"] for found in json.loads(done.stdout) if found["check"] == "environment"]
    assert shown == [
        f"{STORE}={dsn}",
        f"{environment.URL}=nuncius://127.0.0.1:1",
        f"{environment.HTTP}=http://me:***@127.0.0.1:1",
    ]
    assert "canary" not in done.stdout + done.stderr


def test_all_of_them_are_documented() -> None:
    """The page about running a node lists every variable."""
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
    assert [name for name in environment.NAMES if f"`{name}`" not in page] == []


def test_no_other_place_reads_them() -> None:
    """Names of variables are in one file."""
    source = Path(environment.__file__).parents[1]
    named = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if any(f'"{name}"' in path.read_text("utf-8") for name in environment.NAMES)
    ]
    assert named == ["store/environment.py"]
