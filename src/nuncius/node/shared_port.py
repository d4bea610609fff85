"""The port that Telesto's clients and native clients share. The first bytes of a connection tell which of its
three framings it uses."""

import logging

from nuncius.broker import Broker
from nuncius.broker.caller import Caller
from nuncius.doors.native.session import NATIVE, NativeSession
from nuncius.doors.tcp import MAX_CONNECTIONS, TcpDoor
from nuncius.doors.telesto.codec import DETECTION_BYTES, detect
from nuncius.doors.telesto.session import HOLD_SECONDS, TelestoSession
from nuncius.doors.telesto.trace import NodeTrace
from nuncius.doors.wire import Session, Wire
from nuncius.wire.codec import MAGIC

log = logging.getLogger(__name__)


class TelestoGreeting:
    """A connection whose protocol is not known yet. It hands over to that protocol's session."""

    speaks = "greeting"

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
            self._wire.caller = Caller(NATIVE, f"{NATIVE}-{self._wire.number}")
            self._hand_over(NativeSession(self._broker, self._wire), heard[len(MAGIC) :])
        elif not MAGIC.startswith(heard):
            log.info("a connection that speaks nothing we know")
            self._wire.close()

    def _hand_over(self, session: Session, data: bytes) -> None:
        self._wire.session = session
        if data:
            session.received(data)

    def lost(self) -> None:
        """Do nothing: no request is open yet."""

    async def finish(self) -> None:
        self._wire.close()

    def break_off(self, reason: str) -> None:
        """Close without an error: the client's protocol is unknown."""
        self._wire.close()


class TelestoDoor(TcpDoor):
    """`hold` is the number of seconds that a Telesto read waits for a message; `trace` records the duration
    of each Telesto request."""

    name = "telesto"

    def __init__(
        self,
        broker: Broker,
        hold: float = HOLD_SECONDS,
        trace: NodeTrace | None = None,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        super().__init__(broker, max_connections)
        self._hold = hold
        self._trace = trace
        self.count_as(NATIVE)

    def greet(self, wire: Wire) -> Session:
        return TelestoGreeting(self._broker, wire, self._hold, self._trace)
