"""The ZeroMQ port: what a ROUTER socket is to REQ and DEALER sockets."""

import asyncio
import logging

from nuncius.broker import Broker
from nuncius.doors.wire import Session, Wire
from nuncius.doors.zeromq.session import ZeromqSession

log = logging.getLogger(__name__)

BACKLOG = 1024
MAX_CONNECTIONS = 10_000
FINISH_SECONDS = 10.0


async def _finish(wire: Wire) -> None:
    await wire.session.finish()
    await wire.gone()


class ZeromqDoor:
    def __init__(self, broker: Broker, max_connections: int = MAX_CONNECTIONS) -> None:
        self._broker = broker
        self._max_connections = max_connections
        self._wires: set[Wire] = set()
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int, *, share_port: bool = False) -> int:
        """Listens; answers with the port, which is any free one if 0 was asked for."""
        self._server = await asyncio.get_running_loop().create_server(
            self._connect, host, port, backlog=BACKLOG, reuse_port=share_port or None
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    @property
    def connections(self) -> int:
        return len(self._wires)

    async def close(self) -> None:
        """No new connections; the ones there are get answers to what they asked, then end."""
        if self._server is None:
            return
        self._server.close()
        if self._wires:
            tasks = [asyncio.ensure_future(_finish(wire)) for wire in self._wires]
            _, late = await asyncio.wait(tasks, timeout=FINISH_SECONDS)
            for task in late:
                task.cancel()
            for wire in list(self._wires):
                wire.close()

    def _connect(self) -> Wire:
        return Wire(self._greet, self._broker.pressure, self._wires)

    def _greet(self, wire: Wire) -> Session:
        session = ZeromqSession(self._broker, wire)
        if len(self._wires) > self._max_connections:
            log.warning("too many connections", extra={"limit": self._max_connections})
            wire.close()
        return session
