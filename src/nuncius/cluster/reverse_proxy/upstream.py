"""A connection to a server that requests are passed on to, for one request at a time.

Answers are passed on as they arrive, byte by byte as they are; the parser only looks for their beginning and
their end.
"""

import asyncio
from dataclasses import dataclass, field
from enum import IntEnum, auto
from typing import Protocol, cast

import httptools

CONNECT_SECONDS = 2.0
IDLE_SECONDS = 3.0  # servers close connections that are idle for longer; a proxy does it first
MAX_HEAD = MAX_COMPLAINT = 64 << 10


class Receiver(Protocol):
    """The receiver of an answer."""

    def answer_begins(self, status: int) -> bool:
        """Return True if the answer is to be passed on; otherwise it is read, and `answer_refused` called."""

    def answer_part(self, data: bytes) -> None: ...

    def answer_ends(self, closes: bool) -> None: ...

    def answer_refused(self, status: int, content: bytes) -> None: ...

    def answer_fails(self, reason: str, begun: bool) -> None: ...


class State(IntEnum):  # an IntEnum has the quicker hash
    IDLE = auto()
    ASKED = auto()
    PASSING = auto()
    """The answer has begun and is passed on."""
    PASSED = auto()
    READING = auto()
    """The answer has begun and is not passed on."""
    READ = auto()
    CLOSED = auto()


class UpstreamEvent(IntEnum):
    ASK = auto()
    PASS_ON = auto()
    REFUSE = auto()
    END = auto()
    KEEP = auto()


_NEXT = {
    (State.IDLE, UpstreamEvent.ASK): State.ASKED,
    (State.ASKED, UpstreamEvent.PASS_ON): State.PASSING,
    (State.ASKED, UpstreamEvent.REFUSE): State.READING,
    (State.PASSING, UpstreamEvent.END): State.PASSED,
    (State.READING, UpstreamEvent.END): State.READ,
    (State.PASSED, UpstreamEvent.KEEP): State.IDLE,
    (State.READ, UpstreamEvent.KEEP): State.IDLE,
}


@dataclass(slots=True, eq=False)
class Backend:
    """A server that requests are passed on to, and the idle connections to it."""

    host: str
    port: int
    idle: list["Upstream"] = field(default_factory=list)
    heard_at: float = 0.0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    async def connect(self) -> "Upstream":
        async with asyncio.timeout(CONNECT_SECONDS):
            _, upstream = await asyncio.get_running_loop().create_connection(
                lambda: Upstream(self), self.host, self.port
            )
        return upstream

    def take_idle(self, now: float) -> "Upstream | None":
        """Return the most recently used connection that is likely to be still open."""
        self.drop_idle(now)
        return self.idle.pop() if self.idle else None

    def drop_idle(self, now: float) -> None:
        """Close connections that were idle for too long."""
        while self.idle and now - self.idle[0].idle_since >= IDLE_SECONDS:
            self.idle.pop(0).close()

    def close(self) -> None:
        for upstream in self.idle:
            upstream.close()
        self.idle.clear()


class Upstream(asyncio.Protocol):
    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.deadline = self.asked_at = self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser
        self._receiver: Receiver | None = None
        self.state = State.IDLE
        self._is_head = False  # the request is: its answer has no body
        self._keeps_alive = False
        self._head = b""  # what has arrived of an answer that has not begun
        self._said = b""

    def ask(self, request: bytes, receiver: Receiver, *, is_head: bool, deadline: float) -> None:
        if self.state is State.CLOSED:
            receiver.answer_fails("closed the connection", False)
            return
        self._move(UpstreamEvent.ASK)
        self._parser = httptools.HttpResponseParser(self)
        self._receiver = receiver
        self._is_head = is_head
        self._head = self._said = b""
        self.deadline = deadline
        self.asked_at = self._loop.time()
        self._transport.write(request)

    @property
    def has_begun(self) -> bool:
        return self.state is not State.ASKED

    def give_up(self, reason: str) -> None:
        """Stop waiting for the answer."""
        self._transport.abort()
        self._fail(reason)

    def leave(self) -> None:
        """End the connection after its client has left, because its answer has no receiver."""
        self._receiver = None
        self._transport.abort()

    @property
    def is_paused(self) -> bool:
        return not self._transport.is_reading()

    def pause(self) -> None:
        if self.state is not State.CLOSED:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self.state is not State.CLOSED:
            self._transport.resume_reading()

    def close(self) -> None:
        self._transport.close()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        self.backend.heard_at = self._loop.time()
        if receiver is None:  # no request is open
            self._transport.abort()
            self._leave_pool()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()
            self._fail("sent something that is not HTTP")
            return
        if self.state is State.ASKED:
            self._head += data
            if len(self._head) > MAX_HEAD:
                self.give_up("sent a head that is too large")
            return
        if self.state in (State.PASSING, State.PASSED):
            receiver.answer_part(self._head + data)
            self._head = b""
        if self.state in (State.PASSED, State.READ):
            self._finish()

    def connection_lost(self, error: Exception | None) -> None:
        self._leave_pool()
        is_open = self.state in (State.PASSING, State.READING)
        if self._receiver is not None and is_open and not self._keeps_alive:
            self._move(UpstreamEvent.END)  # the end of the connection ends the answer
            self._finish()
        else:
            self._fail("closed the connection")
        self.state = State.CLOSED

    def _leave_pool(self) -> None:
        if self in self.backend.idle:
            self.backend.idle.remove(self)

    def _finish(self) -> None:
        receiver, self._receiver = self._receiver, None
        assert receiver is not None
        is_passed, closes = self.state is State.PASSED, not self._keeps_alive
        status = self._parser.get_status_code()
        if closes:
            self._transport.close()
        else:
            self._move(UpstreamEvent.KEEP)
            self._transport.resume_reading()  # a slow client may have paused reading at the very end
            self.idle_since = self._loop.time()
            self.backend.idle.append(self)
        if is_passed:
            receiver.answer_ends(closes)
        else:
            receiver.answer_refused(status, self._said)

    def _fail(self, reason: str) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.answer_fails(reason, self.state in (State.PASSING, State.PASSED))

    def _move(self, event: UpstreamEvent) -> None:
        self.state = _NEXT[self.state, event]

    # httptools

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return
        self._keeps_alive = self._parser.should_keep_alive()  # the parser forgets this at the end
        assert self._receiver is not None
        self._move(UpstreamEvent.PASS_ON if self._receiver.answer_begins(status) else UpstreamEvent.REFUSE)
        if self._is_head:
            self._move(UpstreamEvent.END)

    def on_body(self, body: bytes) -> None:
        if self.state is State.READING and len(self._said) < MAX_COMPLAINT:
            self._said += body

    def on_message_complete(self) -> None:
        if self.state in (State.PASSING, State.READING):
            self._move(UpstreamEvent.END)
