"""A throw-away broker for tests.

    with nuncius.testing.broker() as broker:
        with broker.client() as client:
            client.publish("news", "hello")

It is a real node with an embedded PostgreSQL, in processes of their own, on free ports and in a temporary
directory, all of which are removed afterwards. That holds when the test is killed, too: the node stops when
the pipe to its stdin ends, and a small guard process, which waits for the end of a pipe as well, then stops
the PostgreSQL server and removes the directory.

With pytest, `pytest_plugins = ["nuncius.testing"]` provides the fixture `nuncius_broker`: one broker per
test.
"""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nuncius.store.environment import STORE

if TYPE_CHECKING:
    from nuncius.client import AsyncClient, Client

_CLOSED = [f"--{door}-port=off" for door in ("stomp", "zeromq", "http", "tribbler")]
_DISMISSED = b"dismissed"
_LAST_WORDS = 2000  # characters of a node's log in an error message
_given: set[int] = set()  # ports that this process was given; their servers may be stopped at the moment
_NODES_LEAVE = 10.0  # seconds that the guard gives nodes to end before it stops their server


class BrokerDidNotStart(RuntimeError):
    """The node ended before it was ready. The message contains the end of its log."""


@contextlib.contextmanager
def broker(*arguments: str, store: str | None = None) -> Iterator["Broker"]:
    """Run a broker for the length of a `with` block.

    `arguments` are further options of `nuncius up`, such as "--workers=2". With `store`, the address of a
    database, the node runs on that and starts no PostgreSQL; use this for a second node beside another
    broker.
    """
    with _directory() as directory:
        made = Broker(directory, store, arguments)
        try:
            made.start()
            yield made
        finally:
            made.stop()


def free_port() -> int:
    """Return a free port of this machine, outside the range that systems assign to outgoing connections. So a
    server may stop for a while without losing it, for instance to a client that tries to reconnect."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_768)
        if port not in _given:
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
                _given.add(port)
                return port


class Broker:
    """A running node with its log and data. Created by `broker()`."""

    def __init__(self, directory: Path, store: str | None, arguments: tuple[str, ...]) -> None:
        self._store = store
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: dict[str, Any] = {}
        self.data_dir: Path | None = None if store else directory / "data"
        self.log: Path = directory / "node.log"
        """The file with the node's stderr, over all its starts."""

    @property
    def pid(self) -> int:
        """The process id of the node."""
        return int(self._ready["pid"])

    @property
    def dsn(self) -> str:
        """The address of the store's database."""
        return self._store or str(self._ready["store"])

    @property
    def port(self) -> int:
        """The port for clients. It stays the same over a restart."""
        return int(self._ready["ports"]["telesto"])

    @property
    def ports(self) -> dict[str, int]:
        """The ports of the open listeners, by name."""
        return {name: port for name, port in self._ready["ports"].items() if port is not None}

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"nuncius://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> "Client":
        """Return a client of this broker; use it in a `with` block."""
        from nuncius.client import Client

        return Client(self.url, **options)

    def async_client(self, **options: Any) -> "AsyncClient":
        """Return an asyncio client of this broker; use it in an `async with` block."""
        from nuncius.client import AsyncClient

        return AsyncClient(self.url, **options)

    def start(self) -> None:
        """Start the node again after `stop` or `kill`, on the same port and with the same data."""
        if self._process is not None:
            return
        command = [sys.executable, "-m", "nuncius", "up", "--on-leash", *_CLOSED]
        command.append(f"--telesto-port={self.port if self._ready else free_port()}")
        environment = {name: value for name, value in os.environ.items() if name != STORE}
        if self._store:
            environment[STORE] = self._store  # the environment keeps the password out of process lists
        else:
            command.append(f"--data-dir={self.data_dir}")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the tests; the node ends when they do
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._let_go()
            said = self.log.read_text(errors="replace")[-_LAST_WORDS:].strip()
            raise BrokerDidNotStart(f"the node ended with code {code}: {said}")
        import msgspec

        self._ready = msgspec.json.decode(line)

    def stop(self) -> None:
        """Stop the node cleanly; the data stays. Does nothing if it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the node as `kill -9` does. Its PostgreSQL keeps running."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop the node, if it runs, and start it again."""
        self.stop()
        self.start()

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._let_go()

    def _let_go(self) -> None:
        assert self._process is not None
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """Create a temporary directory with a guard. Its path is short, to fit into a socket's address."""
    directory = Path(tempfile.mkdtemp(prefix="nun-"))
    guard = subprocess.Popen(
        [sys.executable, "-m", __name__, str(directory)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield directory
        _clean_up(directory)
    finally:
        guard.communicate(_DISMISSED if not directory.exists() else None)


def _guard(directory: Path) -> None:
    """Clean up when stdin ends, unless the parent has said that nothing is left to do."""
    if os.read(sys.stdin.fileno(), 1024) != _DISMISSED:
        _clean_up(directory)


def _clean_up(directory: Path) -> None:
    from nuncius.node.embedding import wait_until_left
    from nuncius.store.server import embedded

    wait_until_left(directory / "data", _NODES_LEAVE)
    embedded.stop(directory / "data")
    shutil.rmtree(directory, ignore_errors=True)


if "pytest" in sys.modules:
    import pytest

    @pytest.fixture
    def nuncius_broker() -> Iterator[Broker]:
        """A broker for one test."""
        with broker() as made:
            yield made


if __name__ == "__main__":
    _guard(Path(sys.argv[1]))
