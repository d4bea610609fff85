"""Base of every TCP listener: accept connections, count them, close them after their answers."""

import asyncio
import logging
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from typing import ClassVar

from nuncius.broker import Broker
from nuncius.broker.background.deadlines import DeadlineWatch
from nuncius.broker.caller import Caller
from nuncius.broker.observe.counters_model import ConnectionFacts
from nuncius.doors.listening import BACKLOG, listen, port_of
from nuncius.doors.wire import Session, Wire

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 10_000
FINISH_SECONDS = 10.0


class TcpDoor(ABC):
    """A listener of one protocol. `greet` returns the session of a new connection."""

    name: ClassVar[str]
    """The name of the listener in counters, metrics and options."""

    def __init__(self, broker: Broker, max_connections: int = MAX_CONNECTIONS) -> None:
        self._broker = broker
        self._max_connections = max_connections
        self._servers: list[asyncio.Server] = []
        self.wires: set[Wire] = set()
        self._watch = DeadlineWatch(broker.limits, lambda: self.wires)
        self._numbers = count(1)
        self.count_as(self.name)

    def count_as(self, name: str) -> None:
        """Count the connections whose `door` is this name."""
        self._broker.counters.doors[name] = CountedConnections(name, self.wires, self._servers)

    @abstractmethod
    def greet(self, wire: Wire) -> Session:
        """Return the session that serves the client on this wire."""

    async def open(self, host: str, port: int, *, sockets: Sequence[socket.socket] = ()) -> int:
        """Serve these listening sockets, or new ones for the address. Return the port."""
        sockets = sockets or listen(host, port)
        for each in sockets:
            server = await asyncio.get_running_loop().create_server(
                lambda: Wire(self.welcome, self._broker.pressure, self.wires, self._broker.limits),
                sock=each,
                backlog=BACKLOG,
            )
            self._servers.append(server)
        return port_of(sockets)

    @property
    def connections(self) -> int:
        return len(self.wires)

    def welcome(self, wire: Wire) -> Session:
        """Return the session of a new connection. Close the connection at once if it exceeds the limit."""
        wire.number = next(self._numbers)
        wire.caller = Caller(self.name, f"{self.name}-{wire.number}")
        self._watch.begin()
        if len(self.wires) > self._max_connections:
            log.warning("too many connections", extra={"limit": self._max_connections})
            wire.close()
        return self.greet(wire)

    async def close(self) -> None:
        """Accept no new connections. Answer the open requests of the existing ones, then close them."""
        for server in self._servers:
            server.close()
        if self.wires:
            tasks = [asyncio.ensure_future(_finish(wire)) for wire in self.wires]
            _, late = await asyncio.wait(tasks, timeout=FINISH_SECONDS)
            for task in late:
                task.cancel()
            for wire in list(self.wires):
                wire.close()
        self._watch.end()


class CountedConnections:
    """The connections of a listener that are counted under one name."""

    def __init__(self, name: str, wires: set[Wire], servers: Sequence[asyncio.Server]) -> None:
        self._name = name
        self._wires = wires
        self._servers = servers

    @property
    def is_open(self) -> bool:
        return bool(self._servers or self._wires)

    @property
    def connections(self) -> int:
        return sum(wire.caller.door == self._name for wire in self._wires)

    def list_connections(self) -> Sequence[ConnectionFacts]:
        wall = time.time() - asyncio.get_running_loop().time()
        own = [wire for wire in self._wires if wire.caller.door == self._name]
        return [_describe(wire, wall) for wire in sorted(own, key=lambda each: each.number)]

    def disconnect(self, connection_id: str) -> bool:
        for wire in self._wires:
            if wire.caller.connection == connection_id:
                wire.close()
                return True
        return False


async def _finish(wire: Wire) -> None:
    await wire.session.finish()
    await wire.gone()


def _describe(wire: Wire, wall: float) -> ConnectionFacts:
    """Describe a connection. `wall` is the Unix time at which the loop's clock showed 0."""
    caller = wire.caller
    return ConnectionFacts(
        caller.connection,
        caller.door,
        wire.peer,
        wire.session.speaks,
        caller.client,
        "read only" if caller.is_read_only else "full",
        wall + wire.since,
        wall + wire.heard,
        wire.bytes_in,
        wire.bytes_out,
    )
