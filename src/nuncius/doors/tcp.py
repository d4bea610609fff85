"""What every TCP door does alike: it listens, counts its connections, and ends them politely."""

import asyncio
import logging

from nuncius.broker import Broker
from nuncius.doors.wire import Session, Wire

log = logging.getLogger(__name__)

BACKLOG = 1024
MAX_CONNECTIONS = 10_000
FINISH_SECONDS = 10.0


class TcpDoor:
    """A door says in `greet` who answers a new connection."""

    def __init__(self, broker: Broker, max_connections: int = MAX_CONNECTIONS) -> None:
        self._broker = broker
        self._max_connections = max_connections
        self._server: asyncio.Server | None = None
        self.wires: set[Wire] = set()

    def greet(self, wire: Wire) -> Session:
        raise NotImplementedError

    async def open(self, host: str, port: int, *, share_port: bool = False) -> int:
        """Listens; answers with the port, which is any free one if 0 was asked for."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Wire(self.welcome, self._broker.pressure, self.wires),
            *(host, port),
            backlog=BACKLOG,
            reuse_port=share_port or None,
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    @property
    def connections(self) -> int:
        return len(self.wires)

    def welcome(self, wire: Wire) -> Session:
        """The session of a new connection, wherever it comes from; one too many is closed at once."""
        if len(self.wires) > self._max_connections:
            log.warning("too many connections", extra={"limit": self._max_connections})
            wire.close()
        return self.greet(wire)

    async def close(self) -> None:
        """No new connections; the ones there are get answers to what they asked, then end."""
        if self._server is not None:
            self._server.close()
        if self.wires:
            tasks = [asyncio.ensure_future(_finish(wire)) for wire in self.wires]
            _, late = await asyncio.wait(tasks, timeout=FINISH_SECONDS)
            for task in late:
                task.cancel()
            for wire in list(self.wires):
                wire.close()


async def _finish(wire: Wire) -> None:
    await wire.session.finish()
    await wire.gone()
