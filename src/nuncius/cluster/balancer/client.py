"""The balancer's end of a client's connection: requests are read one by one and passed on whole."""

import asyncio
import re
from collections import deque
from typing import TYPE_CHECKING, cast

import httptools
import msgspec

from nuncius.cluster.balancer.managers import Manager, is_modern, kind_of
from nuncius.cluster.balancer.upstream import FAILING, REFUSING, Upstream
from nuncius.cluster.hosts import is_loopback
from nuncius.cluster.offers import declined

if TYPE_CHECKING:
    from nuncius.cluster.balancer.balancer import Balancer

MAX_REQUEST = 64 << 20
MAX_HEADERS = 64 << 10
MAX_WAITING = 16  # requests that a client may send ahead
# Hop-by-hop headers: they belong to one connection, and the balancer has two.
_OWN_HEADERS = frozenset(
    b"connection keep-alive proxy-connection te trailer transfer-encoding upgrade expect"
    b" content-length".split()
)
END = b"\r\n\r\n"  # of a head
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ALIVE = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nok\n"
BAD, UNAVAILABLE = b"400 Bad Request", b"503 Service Unavailable"
_AUTHORS_PATHS = (b"/broker", b"/partition")
_AUTHORS_WORD = re.compile(rb'[?&]topic_name=|"topic_name"\s*:')


class Refused(Exception):
    """A request that is not passed on."""


class Request:
    """A client's request, ready to be sent."""

    __slots__ = ("alive", "data", "is_head", "kind", "modern", "path", "repeatable", "tried")

    def __init__(self, method: bytes, url: bytes, headers: list[bytes], body: bytes, alive: bool) -> None:
        self.path = b"/" + url.partition(b"?")[0].lstrip(b"/")
        self.kind = kind_of(method, self.path)
        self.modern = is_modern(self.path)
        self.is_head = method == b"HEAD"
        self.alive = alive
        reads = method in (b"GET", b"HEAD", b"OPTIONS") and self.path != b"/consumer/consume"
        self.repeatable = reads or any(line[:16].lower() == b"idempotency-key:" for line in headers)
        self.tried: list[Manager] = []
        if body or method not in (b"GET", b"HEAD"):
            headers.append(b"content-length: %d\r\n" % len(body))
        self.data = b"".join((method, b" ", url, b" HTTP/1.1\r\n", *headers, b"\r\n", body))

    @property
    def is_authors(self) -> bool:
        """Return True if the request is spelled as in the report, whose authors' balancer reports every
        failure in the name of the manager."""
        return self.path.startswith(_AUTHORS_PATHS) or _AUTHORS_WORD.search(self.data) is not None


class Client(asyncio.Protocol):
    def __init__(self, balancer: "Balancer") -> None:
        self._balancer = balancer
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport
        self._is_public = False  # reached from another machine
        self._waiting: deque[Request] = deque()
        self._request: Request | None = None  # the request in progress
        self._upstream: Upstream | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._refused = ""  # the reason why reading has stopped
        self._unfinished = 0  # bytes since the last end of a head or piece of a body
        self.idle = asyncio.Event()  # set while all requests are answered
        self.idle.set()
        self._reset()

    def _reset(self) -> None:
        self._url = b""
        self._headers: list[bytes] = []
        self._body: list[bytes] = []
        self._alive = True
        self._in_body = False
        self._size = 0  # of the head
        self._length = 0  # of the body

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._balancer.clients) >= self._balancer.max_connections:
            self._transport.write(_failure("too many connections", UNAVAILABLE))
            self._transport.close()
            return
        self._balancer.clients.add(self)
        local = transport.get_extra_info("sockname")
        self._is_public = not (local and is_loopback(local[0]))

    def data_received(self, data: bytes) -> None:
        try:
            self._unfinished += len(data)
            self._parser.feed_data(data if self._in_body else declined(data))
            self._check(self._unfinished, MAX_HEADERS)
        except (httptools.HttpParserError, Refused):
            self._refuse(self._refused or "this is not HTTP")
        if len(self._waiting) > MAX_WAITING:
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.idle.set()
        self._balancer.clients.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()
        if self._upstream is not None:
            self._balancer.asked.discard(self._upstream)
            self._upstream.leave()

    def pause_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.pause()

    def resume_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.resume()

    @property
    def is_idle(self) -> bool:
        return self.idle.is_set()

    def close(self) -> None:
        self._transport.close()

    # httptools

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._size += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        lower = name.lower()
        self._size += len(name) + len(value)
        self._check(self._size, MAX_HEADERS)
        if lower == b"host" and self._is_public:
            # Managers on this machine do not know the public name of the balancer.
            self._headers.append(b"host: localhost\r\nx-forwarded-host: %b\r\n" % value)
        elif lower not in _OWN_HEADERS:
            self._headers.append(b"%b: %b\r\n" % (name, value))
        elif lower == b"expect" and value.lower() == b"100-continue" and self.is_idle:
            self._transport.write(CONTINUE)  # otherwise it would land in the middle of another answer

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade():
            self._refused = "this is a balancer: connect a WebSocket to a manager"
            raise Refused
        self._check(self._size, MAX_HEADERS)
        self._in_body = True
        self._size = self._unfinished = 0
        self._alive = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        self._length += len(body)
        self._check(self._length, MAX_REQUEST)
        self._body.append(body)

    def _check(self, size: int, most: int) -> None:
        if size > most:
            self._refused = f"a request has at most {most} bytes of this"
            raise Refused

    def on_message_complete(self) -> None:
        body = b"".join(self._body)
        request = Request(self._parser.get_method(), self._url, self._headers, body, self._alive)
        self._reset()
        self._waiting.append(request)
        self.idle.clear()
        if self._request is None:
            self._next()

    # One request after the other

    def _next(self) -> None:
        while self._waiting and not self._transport.is_closing():
            if len(self._waiting) == MAX_WAITING:
                self._transport.resume_reading()
            self._request = self._waiting.popleft()
            if self._request.path != b"/livez":
                self._begin(self._request)
                return
            if not self._answer(self._request, ALIVE):
                return
        self.idle.set()

    def _begin(self, request: Request) -> None:
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
        request = self._request
        assert request is not None
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
            upstream = await Upstream.connect(manager)
        except (OSError, TimeoutError):
            manager.rest()
            self._try(f"{manager} does not answer")
        else:
            manager.down_until = 0.0
            self._ask(upstream)

    def _ask(self, upstream: Upstream) -> None:
        request = self._request
        assert request is not None
        self._upstream = upstream
        deadline = self._balancer.deadline(modern=request.modern)
        self._balancer.asked.add(upstream)
        upstream.ask(request.data, self, is_head=request.is_head, deadline=deadline)

    # The answer

    @property
    def is_repeatable(self) -> bool:
        return self._request is not None and self._request.repeatable

    @property
    def has_alternative(self) -> bool:
        request = self._request
        return request is not None and self._balancer.managers[request.kind].has_other(request.tried)

    def answer_begins(self, status: int) -> bool:
        assert self._request is not None
        if status < REFUSING or self._request.modern:
            return True
        told = self._balancer.sentences
        return status < FAILING and not (self._request.is_authors if told is None else told)

    def answer_part(self, data: bytes) -> None:
        self._transport.write(data)

    def answer_ends(self, closes: bool) -> None:
        request, upstream = self._let_go()
        if not upstream.is_passing:
            said = upstream.complaint
            self._fail(request, said if upstream.status < FAILING else f"{upstream.manager}: {said}")
        elif closes or not request.alive:
            self._transport.close()
        else:
            self._request = None
            self._next()

    def answer_fails(self, reason: str, begun: bool) -> None:
        request, upstream = self._let_go()
        upstream.manager.rest()
        if begun:
            self._transport.abort()  # part of an answer cannot be taken back
        elif request.repeatable:
            self._try(f"{upstream.manager} {reason}")
        else:
            told = f"{upstream.manager} {reason}; it may or may not have done what was asked"
            self._fail(request, told, "outcome_unknown")

    def _let_go(self) -> tuple[Request, Upstream]:
        request, upstream = self._request, self._upstream
        assert request is not None
        assert upstream is not None
        self._upstream = None
        self._balancer.asked.discard(upstream)
        return request, upstream

    def _fail(self, request: Request, reason: str, word: str = "unavailable") -> None:
        if self._transport.is_closing():
            return
        message = f"{request.kind} Failed: {reason}"
        answer = _problem(word, message) if request.modern else _failure(message)
        if self._answer(request, answer):
            self._next()

    def _answer(self, request: Request, answer: bytes) -> bool:
        """Answer the request without a manager. Return True if the connection stays open."""
        self._transport.write(answer.partition(END)[0] + END if request.is_head else answer)
        if request.alive:
            self._request = None
            return True
        self._transport.close()
        return False

    def _refuse(self, reason: str) -> None:
        """Close the connection: the input is invalid, and the start of the next request is unknown."""
        if self.is_idle:  # otherwise it would be taken for the answer to the request before
            self._transport.write(_failure(reason))
        self._transport.close()


def _failure(message: str, status: bytes = BAD) -> bytes:
    """Build a failure in the form of the report's API."""
    return _json(status, {"status": "failure", "message": message})


def _problem(word: str, message: str) -> bytes:
    """Build a failure in the form of /v1."""
    return _json(UNAVAILABLE, {"error": word, "message": message})


def _json(status: bytes, fields: dict[str, str]) -> bytes:
    body = msgspec.json.encode(fields)
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body
