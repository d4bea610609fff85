"""The Telesto port. The first bytes of a connection tell which of the three framings it speaks."""

import asyncio
import logging

from nuncius.broker import Broker
from nuncius.doors.telesto.native import MAGIC
from nuncius.doors.telesto.native_session import NativeSession
from nuncius.doors.telesto.telesto_codec import DETECTION_BYTES, detect
from nuncius.doors.telesto.telesto_session import HOLD_SECONDS, TelestoSession
from nuncius.doors.telesto.trace import NodeTrace
from nuncius.doors.wire import Session, Wire

log = logging.getLogger(__name__)

BACKLOG = 1024
MAX_CONNECTIONS = 10_000
FINISH_SECONDS = 10.0


class Greeting:
    """A connection that has not said yet what it speaks. It hands over to the session that fits."""

    def __init__(self, broker: Broker, wire: Wire, hold: float, trace: NodeTrace | None) -> None:
        self._broker = broker
        self._wire = wire
        self._hold = hold
        self._trace = trace
        self._heard = b""

    def received(self, data: bytes) -> None:
        self._heard += data
        heard = self._heard
        if heard[0] < 0x80:
            if len(heard) >= DETECTION_BYTES:
                session = TelestoSession(self._broker, self._wire, detect(heard), self._hold, self._trace)
                self._hand_over(session, heard)
        elif heard.startswith(MAGIC):
            self._hand_over(NativeSession(self._broker, self._wire), heard[len(MAGIC) :])
        elif not MAGIC.startswith(heard):
            log.info("a connection that speaks nothing we know")
            self._wire.close()

    def _hand_over(self, session: Session, data: bytes) -> None:
        self._wire.session = session
        if data:
            session.received(data)

    def lost(self) -> None:
        """Nothing was promised yet."""

    async def finish(self) -> None:
        self._wire.close()


async def _finish(wire: Wire) -> None:
    await wire.session.finish()
    await wire.gone()


class TelestoDoor:
    """`hold` is for how many seconds a Telesto read that finds nothing waits for a message; `trace` gets what
    each Telesto request took."""

    def __init__(
        self,
        broker: Broker,
        hold: float = HOLD_SECONDS,
        trace: NodeTrace | None = None,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._broker = broker
        self._hold = hold
        self._trace = trace
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
        if len(self._wires) > self._max_connections:
            log.warning("too many connections", extra={"limit": self._max_connections})
            wire.close()
        return Greeting(self._broker, wire, self._hold, self._trace)
