"""The STOMP port. The first frame of a connection tells which dialect it uses.

A CONNECT with the one header `login` is the slim dialect of the report; every other CONNECT, and every STOMP,
is STOMP itself. A client of STOMP 1.0 may send only a login, too; its second frame shows which it is.
"""

from dataclasses import replace
from functools import partial

from nuncius.broker import Broker
from nuncius.doors.stomp import slim_codec
from nuncius.doors.stomp.background import Background
from nuncius.doors.stomp.errors import error_frame
from nuncius.doors.stomp.frames.codec import FrameLimits, cut
from nuncius.doors.stomp.frames.versions import SUPPORTED, StompError, Version
from nuncius.doors.stomp.heartbeat import MINIMUM_MS
from nuncius.doors.stomp.introduction import Introduction, introduce
from nuncius.doors.stomp.session import StompSession
from nuncius.doors.stomp.slim import EXPECTED_CONNECT, TOO_LARGE, SlimSession
from nuncius.doors.stomp.slim_codec import Splitter, TooLarge
from nuncius.doors.stomp.subscriptions.audience import Audience
from nuncius.doors.tcp import MAX_CONNECTIONS, TcpDoor
from nuncius.doors.wire import Session, WebSocketPath, Wire


class Greeting:
    """A connection before its first frame. It hands over to that dialect's session."""

    def __init__(self, door: "StompDoor", wire: Wire) -> None:
        self._door = door
        self._wire = wire
        self._splitter = Splitter(door.limits.max_head)

    def received(self, data: bytes) -> None:
        try:
            for piece in self._splitter.receive(data):
                headers = slim_codec.introduction(piece)
                if headers is not None:
                    self._welcome(piece, headers)
                    return
                self._wire.send(EXPECTED_CONNECT)
        except TooLarge:
            self._wire.send(TOO_LARGE)
            self._wire.close()
        else:
            if not self._wire.is_greeted:
                self._wire.footprint.begin(self._splitter.incomplete)

    def _welcome(self, piece: bytes, headers: dict[str, str]) -> None:
        self._wire.known_as = headers.get("login", "")[:255]
        try:
            introduction = introduce(headers, self._door.heart_beat_ms)
        except StompError as error:
            self._wire.send(error_frame(str(error), Version.V12))
            self._wire.close()
            return
        if introduction is None:
            text = f"Supported protocol versions are {SUPPORTED.replace(',', ' ')}"
            self._wire.send(error_frame(text, Version.V12, more={"version": SUPPORTED}))
            self._wire.close()
            return
        self._wire.is_greeted = True
        self._wire.footprint.begin(0)
        if slim_codec.is_slim(piece, headers):
            self._wire.send(slim_codec.CONNECTED)
            session = self._door.slim_session(self._wire, introduction)
        else:
            self._wire.send(introduction.connected())
            session = self._door.stomp_session(self._wire, introduction)
        self._wire.session = session
        rest = self._splitter.rest()
        if rest:
            session.received(rest)

    def lost(self) -> None:
        """Do nothing: no request is open yet."""

    async def finish(self) -> None:
        self._wire.close()

    def break_off(self, reason: str) -> None:
        self._wire.send(error_frame(reason, Version.V12))
        self._wire.close()


class StompDoor(TcpDoor):
    """`heart_beat_ms` is the shortest heart-beat interval, in both directions."""

    name = "stomp"

    def __init__(
        self,
        broker: Broker,
        max_connections: int = MAX_CONNECTIONS,
        heart_beat_ms: int = MINIMUM_MS,
        limits: FrameLimits | None = None,
    ) -> None:
        super().__init__(broker, max_connections)
        self.heart_beat_ms = heart_beat_ms
        self.limits = replace(limits or FrameLimits(), max_body=broker.limits.max_body)
        self._background = Background()
        self._audience = Audience(broker)

    def greet(self, wire: Wire) -> Session:
        return Greeting(self, wire)

    def over_websocket(self) -> WebSocketPath:
        """Serve the same sessions at `/stomp` of the HTTP port."""
        names = ("v12.stomp", "v11.stomp", "v10.stomp")
        return WebSocketPath("/stomp", names, self.welcome, cut, self.wires)

    async def close(self) -> None:
        await super().close()
        await self._background.drain()

    # For connections that have sent CONNECT

    def stomp_session(self, wire: Wire, introduction: Introduction) -> Session:
        return StompSession(self._broker, wire, introduction, self.limits, self._background)

    def slim_session(self, wire: Wire, introduction: Introduction) -> Session:
        return SlimSession(
            self._broker,
            wire,
            introduction.session,
            self._background,
            self._audience,
            partial(self._hand_over, wire, introduction),
        )

    def _hand_over(self, wire: Wire, introduction: Introduction, data: bytes) -> None:
        """Switch to a STOMP session: the client uses STOMP 1.0, not the slim dialect."""
        wire.session = self.stomp_session(wire, introduction)
        wire.session.received(data)
