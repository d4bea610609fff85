"""A node listens before it does anything else: who connects early waits, and is served."""

import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cli.commands import CLOSED, NUNCIUS, nuncius
from nuncius.node import listeners
from nuncius.store.server.datadir import DataDirectory
from nuncius.testing import free_port
from nuncius.wire import codec as native
from nuncius.wire import packets

SECONDS = 120.0
SPEECHES = {
    "telesto": (native.MAGIC + native.encode(packets.Hello(1)), b"\0"),
    "stomp": (b"CONNECT\naccept-version:1.2\nhost:x\n\n\0", b"CONNECTED"),
    "zeromq": (b"\xff\0\0\0\0\0\0\0\x01\x7f\x03", b"\xff"),
    "http": (b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200"),
    "tribbler": (b"CONNECT /_goRPC_ HTTP/1.0\n\n", b"HTTP/1.0 200 Connected to Go RPC"),
}
"""What a client may say first at each door, and how the answer begins."""


@contextmanager
def held(data_dir: Path) -> Iterator[None]:
    """A data directory in which no server can be started meanwhile."""
    data_dir.mkdir(parents=True)
    with DataDirectory(data_dir).locked():
        yield


@contextmanager
def starting(*arguments: str, directory: Path) -> Iterator["subprocess.Popen[str]"]:
    """A node on a leash that may not be ready yet."""
    process = subprocess.Popen(
        [*NUNCIUS, *arguments],
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)


def dial(port: int, process: "subprocess.Popen[str]") -> socket.socket:
    """Connects as soon as the port is open, which is before the process has done anything that takes long."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        except ConnectionRefusedError:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "nobody listens"


def converse(connection: socket.socket, door: str) -> None:
    words, answer = SPEECHES[door]
    connection.sendall(words)
    said = b""
    while len(said) < len(answer):
        more = connection.recv(1024)
        assert more, f"{door} said {said!r}"
        said += more
    assert said.startswith(answer)


@pytest.mark.parametrize("workers", [1, 3])
def test_every_door_of_up(data_dir: Path, tmp_path: Path, workers: int) -> None:
    """All ports are open before the store is. Connections from then are served once it is, whichever worker
    they are for, and not before that is the node called ready."""
    ports = {door: free_port() for door in SPEECHES}
    file = tmp_path / "ready.json"
    options = [f"--{door}-port={port}" for door, port in ports.items()]
    options += [f"--data-dir={data_dir}", f"--ready-file={file}", f"--workers={workers}", "--on-leash"]
    with ExitStack() as stack:
        with held(data_dir):
            process = stack.enter_context(starting("up", *options, directory=tmp_path))
            waiting = [
                (door, stack.enter_context(dial(port, process)))
                for door, port in ports.items()
                for _ in range(8)
            ]
            assert not file.exists()
        assert process.stdout is not None
        assert process.stdout.readline()
        assert file.exists()
        for door, connection in waiting:
            converse(connection, door)


def test_a_tribbler_server(data_dir: Path, tmp_path: Path) -> None:
    """It is dialled while its PostgreSQL is not there yet, and answers when it is."""
    port = free_port()
    arguments = (f"-port={port}", f"-data={data_dir}", "-on-leash")
    with ExitStack() as stack:
        with held(data_dir):
            process = stack.enter_context(starting("tribbler", *arguments, directory=tmp_path))
            connection = stack.enter_context(dial(port, process))
        converse(connection, "tribbler")


def test_a_port_in_use_is_said_at_once(data_dir: Path) -> None:
    """A node that cannot listen ends before it waits for its store."""
    with held(data_dir), socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for workers in ("--workers=1", "--workers=2"):
            done = nuncius("up", f"--data-dir={data_dir}", f"--telesto-port={port}", workers, *CLOSED)
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr.startswith(f"nuncius: port {port} on 127.0.0.1 is in use")
        assert [each.name for each in data_dir.iterdir()] == [".lock"]


def test_a_start_that_fails(tmp_path: Path) -> None:
    """Clients that came early are not left waiting: their connections end with the node, which says why."""
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as store:
        address = f"postgresql://x@127.0.0.1:{store.getsockname()[1]}/none"
        with ExitStack() as stack:
            process = stack.enter_context(
                starting("up", f"--store={address}", f"--telesto-port={port}", *CLOSED, directory=tmp_path)
            )
            connection = stack.enter_context(dial(port, process))
            store.accept()[0].close()
            store.close()
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
            _, said = process.communicate(timeout=SECONDS)
            assert process.returncode == 1
            assert re.fullmatch(r"nuncius: cannot connect to the store.*\n", said)


def test_connections_for_a_worker_that_died() -> None:
    """New connections go to the other workers, until another process listens in its place."""
    with listeners.opened("127.0.0.1", {"http": 0, "stomp": None}, 2) as opened:
        port = opened.ports["http"]
        assert opened.ports == {"http": port, "stomp": None}
        (first,), (second,) = (sockets["http"] for sockets in opened.sockets)

        def waiting(sockets: list[socket.socket]) -> list[int]:
            """How many of a few new connections each of them gets."""
            with ExitStack() as stack:
                for _ in range(40):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                return [_accept_all(each) for each in sockets]

        assert all(waiting([first, second]))
        opened.pause(1)
        assert waiting([second]) == [40]
        first.listen()
        assert all(waiting([first, second]))
        opened.close()
        opened.pause(1)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def _accept_all(listening: socket.socket) -> int:
    count = 0
    while True:
        try:
            listening.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1
