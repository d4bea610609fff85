"""HTTP connections of uvicorn's, within the node's limits on memory and time.

uvicorn would wait for the second half of a request for ever, and keep all data that a client does not read.
It writes the head and the body of an answer separately, and each write would be a system call; that is a good
part of the cost of a small request.
"""

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from itertools import chain, count
from typing import Any

import msgspec
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from nuncius.broker import Broker
from nuncius.broker.background.deadlines import DeadlineWatch
from nuncius.broker.caller import Caller
from nuncius.broker.footprint import LARGE, LATE, NO_TRANSPORT, SMALL, STOPPED, Footprint, cut_offs
from nuncius.cluster.offers import OFFER, declined
from nuncius.cluster.reverse_proxy.upstream import Upstream
from nuncius.doors.http.connection import malformed
from nuncius.doors.http.connection.malformed import MalformedRequests
from nuncius.doors.http.errors import Problem, Word
from nuncius.doors.http.exchange import CONNECTION, Disconnected
from nuncius.doors.replies import Replies

KEEP_ALIVE_SECONDS = 5.0
"""A connection that is idle for longer is closed."""
MAX_HEAD = 64 << 10  # bytes
HEAD_TOO_LARGE = f"The head of a request has at most {MAX_HEAD} bytes."
NOT_HTTP = "This is not a valid HTTP request."
_TIMEOUT: tuple[bytes, Word] = (b"408 Request Timeout", "timeout")
_NO_ROOM: tuple[bytes, Word] = (b"503 Service Unavailable", "unavailable")
_LAST_ANSWER = (
    b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
)


class Corked:
    """`footprint` is set by the connection."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._has_large = False
        self.footprint: Footprint
        self.bytes_out = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        if len(data) > LARGE:
            self._has_large = True
            self.footprint.sent(len(data))

    def _flush(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        is_large, self._has_large = self._has_large, False
        if self._transport.is_closing():  # the client may have gone meanwhile
            return
        written = len(waiting[0]) if len(waiting) == 1 else sum(map(len, waiting))
        self.bytes_out += written
        if len(waiting) == 1:
            self._transport.write(waiting[0])
        elif is_large:
            self._transport.writelines(waiting)
        else:
            self._transport.write(b"".join(waiting))
        if written > SMALL or self.footprint.unread:
            self.footprint.measure()

    def end(self) -> None:
        """Release the transport of a lost connection."""
        self.footprint.end()
        self._waiting.clear()
        self._transport = NO_TRANSPORT

    def is_closing(self) -> bool:  # asked with every request: not by way of __getattr__
        return self._transport.is_closing()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._waiting.clear()
        self._transport.abort()


class HttpConnection(HttpToolsProtocol):
    """An HTTP connection. Even the head of a request has a limit: the parser would wait for its end."""

    _numbers = count(1)
    _malformed = MalformedRequests()

    def __init__(self, broker: Broker, watch: DeadlineWatch, **options: Any) -> None:
        super().__init__(**options)
        self._broker = broker
        self._watch = watch

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.number = next(self._numbers)
        self.caller = Caller("http", f"http-{self.number}")
        self.since = self.heard_at = self.loop.time()
        self.bytes_in = 0
        self.unfinished = 0
        """Bytes since a head, a piece of a body or a request last ended."""
        self._has_asked = False
        self.answering: RequestResponseCycle | None = None
        self._answered_at = 0.0
        self.upstream: Upstream | None = None
        """The connection whose answer is passed on."""
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
        if self.answering is not None:
            self.answering.disconnected = True
        super().connection_lost(exc)
        self._corked.end()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.answering = cycle
        super()._start_asgi_task(cycle, app)

    def is_stalled(self) -> bool:
        """Return whether the client does not read, or has gone."""
        return self.flow.write_paused or self.transport.is_closing()

    async def writable(self) -> None:
        """Wait until the client has read enough of what it was sent. Raise Disconnected if it has gone."""
        if self.flow.write_paused:
            await self.flow.drain()
        if self.transport.is_closing():
            if self.answering is not None:  # otherwise uvicorn reports a missing answer
                self.answering.disconnected = True
            raise Disconnected

    def data_received(self, data: bytes) -> None:
        self.bytes_in += len(data)
        self.unfinished += len(data)
        self.heard_at = self.loop.time()
        if OFFER in data and not getattr(self.cycle, "more_body", False):  # no cycle before the first request
            data = declined(data)
        super().data_received(data)
        if self.unfinished > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response(HEAD_TOO_LARGE)

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request, or finish the answer to the one before it. End the connection."""
        url = getattr(self, "url", b"")  # as far as it arrived
        status, said = HTTPStatus.BAD_REQUEST, NOT_HTTP
        word: Word = "invalid"
        if self.unfinished > MAX_HEAD:
            status, word, said = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too_large", HEAD_TOO_LARGE
        self._malformed.note(self.client[0] if self.client else "", said)
        is_whole = not getattr(self.cycle, "more_body", True)  # the request before
        if is_whole and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        else:
            self.transport.write(malformed.answer(url, status, word, said))
            self.transport.close()

    def answer(
        self, cycle: RequestResponseCycle, status: int, headers: Iterable[tuple[bytes, bytes]], content: bytes
    ) -> None:
        """Send a whole answer. uvicorn's `send` needs two calls for it, and checks each header."""
        if cycle.disconnected:
            return
        head = [STATUS_LINE[status]]
        for name, value in chain(cycle.default_headers, headers):
            head += (name, b": ", value, b"\r\n")
        head.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
        self._corked.write(b"".join(head))
        if content and cycle.scope["method"] != "HEAD":
            self._corked.write(content)
        self.end_answer(cycle)

    def pass_on(self, cycle: RequestResponseCycle, data: bytes) -> None:
        """Send a piece of an answer that another server has written."""
        cycle.response_started = True
        self._corked.write(data)

    def end_answer(self, cycle: RequestResponseCycle) -> None:
        cycle.waiting_for_100_continue = False
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self._corked.close()
        cycle.on_response()

    def on_response_complete(self) -> None:
        """Begin with the next request. A timer for each idle connection, as uvicorn has, costs more than the
        check in `look`."""
        self._answered_at = self.loop.time()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        if self.unfinished > MAX_HEAD and self._size_of_head() > MAX_HEAD:
            raise ValueError(HEAD_TOO_LARGE)  # stops the parser
        self.unfinished = 0
        self._has_asked = True
        super().on_headers_complete()

    def _size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def on_body(self, body: bytes) -> None:
        self.unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.unfinished = 0
        super().on_message_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.upstream is not None:
            self.upstream.pause()

    def resume_writing(self) -> None:
        self.footprint.measure()
        super().resume_writing()
        if self.upstream is not None:
            self.upstream.resume()

    def look(self, now: float) -> None:
        """End the connection if it has run out of time; see `DeadlineWatch`."""
        if self._has_asked and self._is_idle(now):
            self.transport.close()
        is_due = self._has_asked and self._is_in_a_request()
        self.footprint.check(
            now,
            self._broker.limits,
            self.transport,
            greeting_since=None if self._has_asked else self.since,
            progress_since=self.heard_at if is_due else None,
        )

    def _is_in_a_request(self) -> bool:
        """Return whether the rest of a request is missing although the client could send it."""
        if self.cycle.response_complete:
            return self.unfinished > 0
        return self.cycle.more_body and not self.flow.read_paused

    def _is_idle(self, now: float) -> bool:
        """Return whether all requests were answered a while ago and none has begun."""
        is_answered = self.cycle.response_complete and not self.unfinished
        return is_answered and now - self._answered_at > KEEP_ALIVE_SECONDS

    def _passed(self) -> int:
        return self.bytes_in + self._corked.bytes_out

    def _cut_off(self, reason: str) -> None:
        cut_offs.note(self.caller, peer_of(self.client), reason)
        cycle = self.cycle
        is_answering = self._has_asked and not (cycle.response_complete or cycle.more_body)
        if is_answering or self.footprint.unread > SMALL:
            self.transport.abort()  # no other answer can be sent now
            return
        status, word = _TIMEOUT if reason in (LATE, STOPPED) else _NO_ROOM
        content = msgspec.json.encode(Problem(word, reason))
        self.transport.write(_LAST_ANSWER % (status, len(content), content))
        self.transport.close()


def peer_of(client: tuple[str, int] | None) -> str:
    """Return the client's address, HOST:PORT; empty if unknown."""
    return f"{client[0]}:{client[1]}" if client else ""
