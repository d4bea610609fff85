"""Running commands and nodes as processes, as a user does."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil

from nuncius.client import Client

NUNCIUS = [sys.executable, "-m", "nuncius"]
CLOSED = [f"--{door}-port=off" for door in ("stomp", "zeromq", "http", "tribbler")]
"""For tests that need one door only: the others have ports that may be in use."""


def nuncius(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        [*NUNCIUS, *arguments], capture_output=True, text=True, check=False, timeout=300, **options
    )


class Node:
    """`nuncius up` on a leash: it says on stdout when it is ready, and ends when its stdin does."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*NUNCIUS, "up", "--on-leash", "--telesto-port=0", *CLOSED, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.ready: dict[str, Any] = json.loads(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline() or self._failed()

    def _failed(self) -> str:
        raise RuntimeError(self.process.communicate()[1])

    @property
    def port(self) -> int:
        return int(self.ready["ports"]["telesto"])

    @property
    def url(self) -> str:
        return f"nuncius://127.0.0.1:{self.port}"

    @property
    def dsn(self) -> str:
        return str(self.ready["store"])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Ends the node with a signal; its exit code, and what it wrote to stderr meanwhile."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        _, said = self.process.communicate(timeout=300)
        return self.process.returncode, said

    def wait_for(self, words: str) -> str:
        """Reads stderr up to a line with these words."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if words in line:
                return line
        raise AssertionError(f"the node ended without saying {words!r}")


@contextlib.contextmanager
def node(*arguments: str) -> Iterator[Node]:
    """A node that is gone afterwards, whatever happens."""
    started = Node(*arguments)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.kill()
        started.process.communicate()


def workers(started: Node) -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process(started.process.pid).children()
        if "nuncius.node.worker" in child.cmdline()
    ]


def busy_workers(started: Node) -> set[int]:
    """Which workers have connections of clients on the port they share."""
    return {
        worker.pid
        for worker in workers(started)
        for connection in worker.net_connections("tcp")
        if connection.status == psutil.CONN_ESTABLISHED and connection.laddr.port == started.port
    }


def connect_until_all_are_busy(started: Node, count: int) -> list[Client]:
    """The kernel chooses a worker for each connection; with enough of them all have some."""
    clients: list[Client] = []
    while len(busy_workers(started)) < count and len(clients) < 100:
        clients.append(Client.connect(started.url, name=f"client {len(clients)}"))
    return clients
