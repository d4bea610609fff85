"""`nuncius tribbler` and the Tribbler port of `nuncius up`."""

import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.commands import node
from nuncius.cli.app import build
from nuncius.doors.tribbler.door import NotInRing
from nuncius.doors.tribbler.rpc_client import RpcClient
from nuncius.doors.tribbler.storage_messages import Client, GetArgs, GetReply, RegisterArgs, RegisterReply
from nuncius.doors.tribbler.storage_peer import RpcPeer
from nuncius.node import embedding, listeners
from nuncius.node import node as nodes
from nuncius.node.listeners import Listeners
from nuncius.node.node import NodeError, NodeSettings
from nuncius.ring.settings import RingSettings
from nuncius.store.calls.keys import PUT
from nuncius.store.server.embedded import EmbeddedServer


class Started:
    """What would have been started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.settings: NodeSettings | None = None
        self.directory: Path | None = None
        monkeypatch.setattr(listeners, "opened", _opened)
        monkeypatch.setattr(nodes, "run", self._run)
        monkeypatch.setattr(embedding, "hosted", self._hosted)
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("NUNCIUS_DATA_DIR", raising=False)

    def _run(self, settings: NodeSettings, *_: object, **__: object) -> None:
        self.settings = settings
        if settings.ring and settings.ring.join:
            raise NotInRing("the id 7 is taken by another node")

    def _hosted(self, directory: Path) -> "Started":
        self.directory = directory
        return self

    def __enter__(self) -> EmbeddedServer:
        return EmbeddedServer("postgresql:///x", self.directory or Path(), 1, True)

    def __exit__(self, *_: object) -> None:
        pass


@contextmanager
def _opened(host: str, ports: Mapping[str, int], *, option: str) -> Iterator[Listeners]:
    """Ports that other programs of this machine may have at the moment."""
    assert (host, option) == ("localhost", "-port")
    yield Listeners({door: port or 23456 for door, port in ports.items()}, ({},))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    return Started(monkeypatch, tmp_path)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(build("tribbler"), ["tribbler", *arguments], prog_name="nuncius")
    return re.sub(r"\x1b\[[0-9;]*m", "", result.output) if result.exit_code else ""


@pytest.mark.parametrize(
    ("arguments", "ring", "port"),
    [
        ("", RingSettings(), 9009),
        ("-port=9010 -N=2 -id=7", RingSettings(7, 2), 9010),
        ("-port 9010 -N 2 -id 7", RingSettings(7, 2), 9010),
        ("--port=9010 --N=2 --id=7", RingSettings(7, 2), 9010),
        ("-port=9011 -master=localhost:9009", RingSettings(0, 1, "localhost:9009"), 9011),
        ("-port=9009 -N=2 -master=localhost:9009 -id=4294967295", RingSettings(2**32 - 1, 2), 9009),
        ("-port=9010 -N=0 -master=localhost:9009 -id=0", RingSettings(0, 1, "localhost:9009"), 9010),
        ("-master=h:1 -ids=8 -no-cache", RingSettings(0, 1, "h:1", 8, False, False), 9009),
    ],
)
def test_the_courses_spelling(started: Started, arguments: str, ring: RingSettings, port: int) -> None:
    """Flags have one dash, or two as everywhere else; the master may be told where it is."""
    assert run(*arguments.split()) == ""
    assert started.settings is not None
    assert started.settings.ring == ring
    assert started.settings.ports.tribbler == port
    assert started.settings.ports.telesto is None
    assert started.directory == Path.cwd() / "nuncius-data" / f"tribbler-{port}"


def test_no_way_into_the_ring(started: Started) -> None:
    """A node that is not let in ends, and says why."""
    result = CliRunner().invoke(build("tribbler"), ["tribbler", "-join", "-master=h:1"], prog_name="nuncius")
    assert isinstance(result.exception, NodeError)
    assert "7 is taken" in str(result.exception)
    assert started.settings is not None


def test_where_the_data_is(started: Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Under the data directory of the working directory, or where one says; any free port is a port."""
    assert run("-port=0") == ""
    assert started.settings is not None
    assert started.settings.ports.tribbler
    assert started.directory == tmp_path / "nuncius-data" / f"tribbler-{started.settings.ports.tribbler}"
    assert run("-data=elsewhere") == ""
    assert started.directory == tmp_path / "elsewhere"
    monkeypatch.setenv("NUNCIUS_DATA_DIR", "/somewhere")
    assert run() == ""
    assert started.directory == Path("/somewhere/tribbler-9009")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("-N=-1", "at least one node"),
        ("-N=x", "'x' is not a number"),
        ("-master=localhost", "host:port"),
        ("-join", "-master"),
        ("-port=70000", "equal to 65535"),
        ("-id=-1", "equal to 0"),
        ("-nonsense", "No such option"),
    ],
)
def test_mistakes(started: Started, arguments: str, error: str) -> None:
    """Each is named."""
    assert error in run(*arguments.split())
    assert started.settings is None


async def test_the_port_of_a_node(dsn: str) -> None:
    """`nuncius up` has the door, also with several workers; each node is a ring of one, without leases."""
    for workers in ("--workers=1", "--workers=2"):
        with node("--tribbler-port=0", f"--store={dsn}", workers) as up:
            port = up.ready["ports"]["tribbler"]
            assert up.ready["endpoints"]["tribbler"]["port"] == port
            for n in range(4):
                caller = RpcClient(f"127.0.0.1:{port}")
                assert await RpcPeer(caller).write(PUT, "k", f"{n}", None) == 0
                asked = GetArgs("k", True, "localhost:1")
                reply = await caller.call("StorageRPC.Get", asked, GetReply)
                assert reply == GetReply(0, f"{n}")
                info = RegisterArgs(Client("x:1", 5))
                found = await caller.call("StorageRPC.Register", info, RegisterReply)
                assert found == RegisterReply(True, [Client(f"127.0.0.1:{port}", 0)], 1)
                caller.close()


def test_a_port_that_is_taken(dsn: str) -> None:
    """The message says what to do."""
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(RuntimeError, match=r"in use.*--tribbler-port"),
    ):
        node(f"--tribbler-port={taken.getsockname()[1]}", f"--store={dsn}").__enter__()
