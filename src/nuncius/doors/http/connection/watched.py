"""Memory and deadlines of uvicorn's connections.

uvicorn would wait for the second half of a request for ever, and keep all data that a client does not read.
"""

import asyncio
from typing import Any

import msgspec
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from nuncius.broker import Broker
from nuncius.broker.background.deadlines import DeadlineWatch
from nuncius.broker.footprint import LATE, SMALL, STALLED, STOPPED, Footprint, cut_offs
from nuncius.doors.http.connection.corked import Corked
from nuncius.doors.http.errors import Problem, Word
from nuncius.doors.http.exchange import CONNECTION, Disconnected
from nuncius.doors.replies import Replies

_TIMEOUT: tuple[bytes, Word] = (b"408 Request Timeout", "timeout")
_NO_ROOM: tuple[bytes, Word] = (b"503 Service Unavailable", "unavailable")
_LAST_ANSWER = (
    b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
)


class WatchedHttp(HttpToolsProtocol):
    def __init__(self, broker: Broker, watch: DeadlineWatch, **options: Any) -> None:
        super().__init__(**options)
        self._broker = broker
        self._watch = watch

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._began_at = self._heard_at = self.loop.time()
        self.bytes_in = 0
        self.unfinished = 0
        """Bytes since a head, a piece of a body or a request last ended."""
        self._has_asked = False
        self._answering: RequestResponseCycle | None = None
        self._corked = Corked(transport)
        self.footprint = Footprint(self._broker.pressure, transport, self._passed, self._cut_off)
        self._corked.footprint = self.footprint
        super().connection_made(self._corked)  # type: ignore[arg-type]
        self.replies = Replies(
            self._broker.pressure, self.is_stalled, self.writable, self._broker.limits.max_body
        )
        self._watch.begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark the request being answered as disconnected, too: uvicorn marks only the last one."""
        self.pipeline.clear()
        if self._answering is not None:
            self._answering.disconnected = True
        super().connection_lost(exc)
        self._corked.end()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def is_stalled(self) -> bool:
        """Return whether the client does not read, or has gone."""
        return self.flow.write_paused or self.transport.is_closing()

    async def writable(self) -> None:
        """Wait until the client has read enough of what it was sent. Raise Disconnected if it has gone."""
        if self.flow.write_paused:
            await self.flow.drain()
        if self.transport.is_closing():
            if self._answering is not None:  # otherwise uvicorn reports a missing answer
                self._answering.disconnected = True
            raise Disconnected

    def arrived(self, size: int) -> None:
        self.bytes_in += size
        self.unfinished += size
        self._heard_at = self.loop.time()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self.unfinished = 0
        self._has_asked = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.unfinished = 0
        super().on_message_complete()

    def resume_writing(self) -> None:
        self.footprint.measure()
        super().resume_writing()

    def look(self, now: float) -> None:
        """End the connection if it has run out of time; see `DeadlineWatch`."""
        footprint, limits = self.footprint, self._broker.limits
        footprint.look(now)
        if self.transport.is_closing():
            if footprint.is_stuck(now):
                self.transport.abort()
        elif footprint.is_stalled(now):
            footprint.cut_off(STALLED)
        elif not self._has_asked:
            if now - self._began_at > limits.greeting_seconds:
                footprint.cut_off(LATE)
        elif self._is_in_a_request() and now - self._heard_at > limits.progress_seconds:
            footprint.cut_off(STOPPED)

    def _is_in_a_request(self) -> bool:
        """Return whether the rest of a request is missing although the client could send it."""
        if self.cycle.response_complete:
            return self.unfinished > 0
        return self.cycle.more_body and not self.flow.read_paused

    def _passed(self) -> int:
        return self.bytes_in + self._corked.bytes_out

    def _cut_off(self, reason: str) -> None:
        _note(self.client, reason)
        cycle = self.cycle
        is_answering = self._has_asked and not (cycle.response_complete or cycle.more_body)
        if is_answering or self.footprint.unread > SMALL:
            self.transport.abort()  # no other answer can be sent now
            return
        status, word = _TIMEOUT if reason in (LATE, STOPPED) else _NO_ROOM
        content = msgspec.json.encode(Problem(word, reason))
        self.transport.write(_LAST_ANSWER % (status, len(content), content))
        self.transport.close()


class WatchedWebSocket(WebSocketsSansIOProtocol):
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
        """End the connection if it has run out of time; see `DeadlineWatch`."""
        footprint = self.footprint
        footprint.look(now)
        if self.transport.is_closing():
            if footprint.is_stuck(now):
                self.transport.abort()
        elif footprint.is_stalled(now):
            footprint.cut_off(STALLED)
        elif (
            footprint.incomplete
            and not self.read_paused
            and now - self._heard_at > self._broker.limits.progress_seconds
        ):
            footprint.cut_off(STOPPED)

    def _passed(self) -> int:
        return self._bytes_in + self._corked.bytes_out

    def _cut_off(self, reason: str) -> None:
        _note(self.client, reason)
        self.transport.abort()


def _note(client: tuple[str, int] | None, reason: str) -> None:
    cut_offs.note("http", f"{client[0]}:{client[1]}" if client else "", reason)
