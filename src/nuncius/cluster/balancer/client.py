"""The balancer's end of a client's connection: requests are read one by one and passed on whole."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools

from nuncius.broker.caller import Caller
from nuncius.broker.footprint import LARGE, LATE, NO_TRANSPORT, SMALL, STOPPED, Footprint, cut_offs
from nuncius.cluster.balancer.managers import Manager
from nuncius.cluster.balancer.requests import (
    FAILING,
    HEAD_TOO_LARGE,
    TIMEOUT,
    TOO_LARGE,
    UNAVAILABLE,
    BadRequest,
    ProxiedRequest,
    failure,
    message_in,
)
from nuncius.cluster.hosts import is_loopback
from nuncius.cluster.offers import declined
from nuncius.cluster.reverse_proxy.requests import HOP_BY_HOP
from nuncius.cluster.reverse_proxy.upstream import Upstream

if TYPE_CHECKING:
    from nuncius.cluster.balancer.balancer import Balancer

MAX_REQUEST = 64 << 20
MAX_HEADERS = 64 << 10
MAX_WAITING = 16  # requests that a client may send ahead
END = b"\r\n\r\n"  # of a head
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ALIVE = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nok\n"
BALANCER = Caller("balancer", "balancer")


class BalancerClient(asyncio.Protocol):
    def __init__(self, balancer: "Balancer") -> None:
        self._balancer = balancer
        self._pressure = balancer.pressure
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._has_asked = self._is_paused = self._is_public = False  # public: reached from another machine
        self._waiting: deque[ProxiedRequest] = deque()
        self._request: ProxiedRequest | None = None  # the request in progress
        self._upstream: Upstream | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._refused: BadRequest | None = None  # the reason why reading has stopped
        self._unfinished = 0  # bytes since the last end of a head or piece of a body
        self._passed = self._open = 0  # bytes read and written, bytes of open requests
        self.idle = asyncio.Event()  # set while all requests are answered
        self.idle.set()
        self._reset()

    def _reset(self) -> None:
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._alive = True
        self._has_key = False
        self._in_request = self._in_body = False
        self._size = 0  # of the head
        self._length = 0  # of the body

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._since = self._heard_at = self._loop.time()
        self._footprint = Footprint(self._pressure, self._transport, lambda: self._passed, self._cut_off)
        if len(self._balancer.clients) >= self._balancer.max_connections:
            self._transport.write(failure("too many connections", UNAVAILABLE))
            self._transport.close()
            return
        self._balancer.welcome(self)
        local = transport.get_extra_info("sockname")
        self._is_public = not (local and is_loopback(local[0]))

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._passed += len(data)
        self._unfinished += len(data)
        try:
            self._parser.feed_data(data if self._in_body else declined(data))
            self._check(self._unfinished, MAX_HEADERS, HEAD_TOO_LARGE)
        except (httptools.HttpParserError, BadRequest):
            self._refuse(self._refused or BadRequest("this is not HTTP"))
        size = self._unfinished + self._length
        if size != self._footprint.incomplete:
            self._footprint.begin(size)
        if len(self._waiting) > MAX_WAITING or self._pressure.is_high:
            self._pace()

    def connection_lost(self, error: Exception | None) -> None:
        self.idle.set()
        self._balancer.clients.discard(self)
        self._pressure.forget(self._pace)
        self._pressure.remove(self._open)
        self._open = 0
        self._footprint.end()
        self._transport = NO_TRANSPORT
        if self._connecting is not None:
            self._connecting.cancel()
        if self._upstream is not None:
            self._balancer.asked.pop(self._upstream, None)
            self._upstream.leave()

    def pause_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.pause()

    def resume_writing(self) -> None:
        self._footprint.measure()
        if self._upstream is not None:
            self._upstream.resume()

    def _pace(self) -> None:
        """Read while there is room for more requests."""
        if self._transport.is_closing():
            return
        if self._pressure.is_high:
            self._pressure.when_relieved(self._pace)
        if len(self._waiting) > MAX_WAITING or self._pressure.is_high:
            self._is_paused = True
            self._transport.pause_reading()
        elif self._is_paused:
            self._is_paused = False
            self._heard_at = self._loop.time()  # bytes that arrived during the pause were not read
            self._transport.resume_reading()

    def look(self, now: float) -> None:
        """End the connection if it has run out of time; see `Watch`."""
        is_due = self._in_request and not self._is_paused
        self._footprint.check(
            now,
            self._balancer.limits,
            self._transport,
            greeting_since=None if self._has_asked else self._since,
            progress_since=self._heard_at if is_due else None,
        )

    def _cut_off(self, reason: str) -> None:
        peer = self._transport.get_extra_info("peername")
        cut_offs.note(BALANCER, f"{peer[0]}:{peer[1]}" if peer else "", reason)
        if self.idle.is_set() and self._footprint.unread <= SMALL:
            self._refuse(BadRequest(reason, TIMEOUT if reason in (LATE, STOPPED) else UNAVAILABLE))
        else:
            self._transport.abort()  # no other answer can be sent now

    def close(self) -> None:
        self._transport.close()

    # httptools

    def on_message_begin(self) -> None:
        self._in_request = True

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._size += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        self._size += len(name) + len(value)
        self._check(self._size, MAX_HEADERS, HEAD_TOO_LARGE)
        if lower == b"host" and self._is_public:
            # Managers on this machine do not know the public name of the balancer.
            self._headers += ((b"host", b"localhost"), (b"x-forwarded-host", value))
        elif lower not in HOP_BY_HOP:
            self._headers.append((name, value))
            if lower == b"idempotency-key":
                self._has_key = True
        elif lower == b"expect" and value.lower() == b"100-continue" and self.idle.is_set():
            self._transport.write(CONTINUE)  # otherwise it would land in the middle of another answer

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade():
            self._refused = BadRequest("this is a balancer: connect a WebSocket to a manager")
            raise self._refused
        self._check(self._size, MAX_HEADERS, HEAD_TOO_LARGE)
        self._in_body = True
        self._size = self._unfinished = 0
        self._alive = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        self._length += len(body)
        self._check(self._length, MAX_REQUEST, TOO_LARGE)
        self._body.append(body)

    def _check(self, size: int, most: int, status: bytes) -> None:
        if size > most:
            self._refused = BadRequest(f"a request has at most {most} bytes of this", status)
            raise self._refused

    def on_message_complete(self) -> None:
        body = b"".join(self._body)
        method, alive, has_key = self._parser.get_method(), self._alive, self._has_key
        request = ProxiedRequest(method, self._url, self._headers, body, alive=alive, has_key=has_key)
        self._unfinished = 0
        self._has_asked = True
        self._reset()
        self._open += len(request.data)
        self._pressure.add(len(request.data))
        self._waiting.append(request)
        self.idle.clear()
        if self._request is None:
            self._next()

    # One request after the other

    def _next(self) -> None:
        while self._waiting and not self._transport.is_closing():
            self._request = self._waiting.popleft()
            if self._is_paused:
                self._pace()
            if self._request.path != b"/livez":
                self._begin(self._request)
                return
            if not self._answer(self._request, ALIVE):
                return
        self.idle.set()

    def _begin(self, request: ProxiedRequest) -> None:
        if self._balancer.managers[request.kind].is_empty:
            self._connecting = asyncio.ensure_future(self._look_and_try())
        else:
            self._try("there is none")

    async def _look_and_try(self) -> None:
        """Look for managers again, then try: a manager may have started a moment ago."""
        await self._balancer.look_now()
        self._try("there is none")

    def _try(self, reason: str) -> None:
        """Ask the next manager. `reason` says why the last one failed."""
        request = self.request
        manager = self._balancer.managers[request.kind].next(request.tried)
        if manager is None:
            self._fail(request, reason)
            return
        request.tried.append(manager)
        upstream = manager.take_idle(self._balancer.now())
        if upstream is None:
            self._connecting = asyncio.ensure_future(self._connect(manager))
        else:
            self._ask(upstream)

    async def _connect(self, manager: Manager) -> None:
        try:
            upstream = await manager.connect()
        except (OSError, TimeoutError):
            manager.rest()
            self._try(f"{manager} does not answer")
        else:
            manager.down_until = 0.0
            self._ask(upstream)

    def _ask(self, upstream: Upstream) -> None:
        request = self.request
        self._upstream = upstream
        deadline = self._balancer.deadline(modern=request.modern)
        self._balancer.asked[upstream] = self
        upstream.ask(request.data, self, is_head=request.is_head, deadline=deadline)

    # The answer

    @property
    def request(self) -> ProxiedRequest:
        """The request in progress."""
        assert self._request is not None
        return self._request

    @property
    def has_alternative(self) -> bool:
        """True if there is another manager that was not asked yet."""
        return self._balancer.managers[self.request.kind].has_other(self.request.tried)

    def answer_begins(self, status: int) -> bool:
        return self.request.takes_answer(status, self._balancer.sentences)

    def answer_part(self, data: bytes) -> None:
        self._write(data)

    def answer_ends(self, closes: bool) -> None:
        request, _ = self._let_go()
        self._done(request)
        if closes or not request.alive:
            self._transport.close()
        else:
            self._next()

    def answer_refused(self, status: int, content: bytes) -> None:
        request, upstream = self._let_go()
        said = message_in(content, status)
        self._fail(request, said if status < FAILING else f"{upstream.backend}: {said}")

    def answer_fails(self, reason: str, begun: bool) -> None:
        request, upstream = self._let_go()
        request.tried[-1].rest()
        if begun:
            self._transport.abort()  # part of an answer cannot be taken back
        elif request.repeatable:
            self._try(f"{upstream.backend} {reason}")
        else:
            told = f"{upstream.backend} {reason}; it may or may not have done what was asked"
            self._fail(request, told, "outcome_unknown")

    def _let_go(self) -> tuple[ProxiedRequest, Upstream]:
        request, upstream = self.request, self._upstream
        assert upstream is not None
        self._upstream = None
        self._balancer.asked.pop(upstream, None)
        return request, upstream

    def _fail(self, request: ProxiedRequest, reason: str, word: str = "unavailable") -> None:
        if self._transport.is_closing():
            return
        if self._answer(request, request.failure(reason, word)):
            self._next()

    def _answer(self, request: ProxiedRequest, answer: bytes) -> bool:
        """Answer the request without a manager. Return True if the connection stays open."""
        self._write(answer.partition(END)[0] + END if request.is_head else answer)
        self._done(request)
        if not request.alive:
            self._transport.close()
        return request.alive

    def _done(self, request: ProxiedRequest) -> None:
        """Stop counting an answered request."""
        self._request = None
        self._open -= len(request.data)
        self._pressure.remove(len(request.data))

    def _write(self, data: bytes) -> None:
        self._passed += len(data)
        self._transport.write(data)
        if len(data) > LARGE:
            self._footprint.measure()

    def _refuse(self, error: BadRequest) -> None:
        """Close the connection: the input is invalid, and the start of the next request is unknown."""
        if self.idle.is_set():  # otherwise it would be taken for the answer to the request before
            self._transport.write(failure(str(error), error.status))
        self._transport.close()
