"""The surroundings of the demonstration and the tour: a node with all its doors open, and its clients."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from nuncius.cli.commands.demo.doors import HttpPeer, SqlPeer, StompPeer, directory_for_clients
from nuncius.client import Client
from nuncius.client.tribbler import TribblerClient
from nuncius.client.zeromq import PubSubClient
from nuncius.node.node import NodeError
from nuncius.store import environment

# A message whose deliveries fail becomes a dead letter within a second, so that users can watch it.
IMPATIENT = ("--max-attempts=2", "--retry-delay=0.2")


@dataclass(slots=True)
class World:
    data_dir: Path
    dsn: str
    ports: dict[str, int]
    closing: contextlib.ExitStack
    native: Client
    stomp: StompPeer
    zeromq: PubSubClient
    http: HttpPeer
    tribbler: TribblerClient
    sql: SqlPeer
    notes: dict[str, Any] = field(default_factory=dict)
    """Objects that one step leaves for the next."""

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.ports['http']}"

    @property
    def console_url(self) -> str:
        return f"{self.http_url}/console"

    @property
    def exports(self) -> str:
        """Return the `export` line that lets commands in another terminal find this node's unusual ports."""
        found = {
            environment.URL: f"nuncius://127.0.0.1:{self.ports['telesto']}",
            environment.HTTP: self.http_url,
            environment.TRIBBLER: f"127.0.0.1:{self.ports['tribbler']}",
        }
        return " ".join(["export", *(f"{name}={value}" for name, value in found.items())])

    def new_stomp(self, login: str) -> StompPeer:
        peer = StompPeer(self.ports["stomp"], login)
        self.closing.callback(peer.close)
        return peer


@contextlib.contextmanager
def world(data_dir: Path | None, *, fixed_ports: bool = False) -> Iterator[World]:
    """Run a node of its own, in this directory or a temporary one. It ends with this program."""
    with contextlib.ExitStack() as stack:
        if data_dir is None:
            parent = Path(tempfile.mkdtemp(prefix="nun-demo-"))
            stack.callback(shutil.rmtree, parent, ignore_errors=True)
            data_dir = parent / "data"
        data_dir = data_dir.absolute()
        if data_dir.is_dir() and any(data_dir.iterdir()):
            raise NodeError(f"{data_dir} is in use: the story begins in an empty directory")
        ready = stack.enter_context(_node(data_dir, fixed_ports))
        ports = {name: int(port) for name, port in ready["ports"].items() if port is not None}
        stomp = StompPeer(ports["stomp"], "demo")
        stack.callback(stomp.close)
        yield World(
            data_dir,
            ready["store"],
            ports,
            stack,
            stack.enter_context(Client(f"nuncius://127.0.0.1:{ports['telesto']}", name="demo")),
            stomp,
            stack.enter_context(
                PubSubClient(
                    "demo", f"tcp://127.0.0.1:{ports['zeromq']}", directory=directory_for_clients(data_dir)
                )
            ),
            HttpPeer(ports["http"]),
            stack.enter_context(TribblerClient(f"127.0.0.1:{ports['tribbler']}")),
            SqlPeer(ready["store"]),
        )


@contextlib.contextmanager
def _node(data_dir: Path, fixed_ports: bool) -> Iterator[dict[str, Any]]:
    doors = ("telesto", "stomp", "zeromq", "http", "tribbler")
    ports = [] if fixed_ports else [f"--{door}-port=0" for door in doors]
    environ = {name: value for name, value in os.environ.items() if name != environment.STORE}
    process = subprocess.Popen(
        [sys.executable, "-m", "nuncius", "up", "--on-leash", f"--data-dir={data_dir}", *ports, *IMPATIENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environ,
        start_new_session=True,  # Ctrl-C reaches only this program; the node ends with it
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise NodeError("the node of the demonstration did not start; it said why above")
        yield msgspec.json.decode(line)
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdin.close()
        process.stdout.close()
        process.wait()
