"""The Telesto port. The first bytes of a connection tell which of the three framings it speaks."""

import asyncio
import logging

from nuncius.broker import Broker
from nuncius.doors.telesto.native import MAGIC
from nuncius.doors.telesto.native_session import NativeSession
from nuncius.doors.telesto.telesto_codec import DETECTION_BYTES, detect
from nuncius.doors.telesto.telesto_session import HOLD_SECONDS, TelestoSession
from nuncius.doors.wire import Session, Wire

log = logging.getLogger(__name__)

BACKLOG = 1024
FINISH_SECONDS = 10.0


class Greeting:
    """A connection that has not said yet what it speaks. It hands over to the session that fits."""

    def __init__(self, broker: Broker, wire: Wire, hold: float) -> None:
        self._broker = broker
        self._wire = wire
        self._hold = hold
        self._heard = b""

    def received(self, data: bytes) -> None:
        self._heard += data
        heard = self._heard
        if heard[0] < 0x80:
            if len(heard) >= DETECTION_BYTES:
                self._hand_over(TelestoSession(self._broker, self._wire, detect(heard), self._hold), heard)
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


class TelestoDoor:
    """`hold` is for how many seconds a Telesto read that finds nothing waits for a message."""

    def __init__(self, broker: Broker, hold: float = HOLD_SECONDS) -> None:
        self._broker = broker
        self._hold = hold
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
        sessions: list[Session] = [wire.session for wire in self._wires]
        if sessions:
            tasks = [asyncio.ensure_future(session.finish()) for session in sessions]
            _, late = await asyncio.wait(tasks, timeout=FINISH_SECONDS)
            for task in late:
                task.cancel()
            for wire in list(self._wires):
                wire.close()

    def _connect(self) -> Wire:
        return Wire(lambda wire: Greeting(self._broker, wire, self._hold), self._broker.pressure, self._wires)
