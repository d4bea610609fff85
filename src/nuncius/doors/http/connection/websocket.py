"""A WebSocket connection of uvicorn's, within the node's limits on memory and time."""

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from nuncius.broker import Broker
from nuncius.broker.caller import Caller
from nuncius.broker.footprint import Footprint, cut_offs
from nuncius.doors.http.connection.http import Corked, peer_of
from nuncius.doors.http.exchange import CONNECTION

WEBSOCKET = Caller("http", "websocket")  # the session behind it has a caller of its own


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket connection with its incomplete messages and written bytes counted; the session's own wire
    is watched as well."""

    def __init__(self, broker: Broker, **options: Any) -> None:
        super().__init__(**options)
        self._broker = broker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._corked: Corked = self.transport  # type: ignore[assignment]
        self._corked.footprint.clear()  # it belonged to the HTTP connection before the upgrade
        self.footprint = Footprint(self._broker.pressure, self.transport, self._passed, self._cut_off)
        self._corked.footprint = self.footprint
        self._bytes_in = 0
        self._unfinished = 0
        """Bytes since the last message ended."""
        self._heard_at = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._corked.end()

    def data_received(self, data: bytes) -> None:
        self._bytes_in += len(data)
        self._unfinished += len(data)
        self._heard_at = self.loop.time()
        super().data_received(data)
        self.footprint.begin(self._unfinished)

    def send_receive_event_to_app(self) -> None:
        self._note_end()
        super().send_receive_event_to_app()

    def handle_ping(self) -> None:
        self._note_end()
        super().handle_ping()

    def handle_pong(self, event: Any) -> None:
        self._note_end()
        super().handle_pong(event)

    def _note_end(self) -> None:
        """Note that a message or a control frame is complete."""
        self._unfinished = len(self.conn.reader.buffer)

    def handle_connect(self, event: Any) -> None:
        self._note_end()
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope[CONNECTION] = self  # type: ignore[literal-required]

    def resume_writing(self) -> None:
        self.footprint.measure()
        super().resume_writing()

    def look(self, now: float) -> None:
        """End the connection if it has run out of time; see `Watch`."""
        is_due = self.footprint.incomplete and not self.read_paused
        self.footprint.check(
            now,
            self._broker.limits,
            self.transport,
            greeting_since=None,
            progress_since=self._heard_at if is_due else None,
        )

    def _passed(self) -> int:
        return self._bytes_in + self._corked.bytes_out

    def _cut_off(self, reason: str) -> None:
        cut_offs.note(WEBSOCKET, peer_of(self.client), reason)
        self.transport.abort()
