"""The balancer's end of a connection to a manager.

Answers are passed on as they arrive; the parser only finds their end.
"""

import asyncio
from typing import Protocol, cast

import httptools
import msgspec

from nuncius.cluster.balancer.managers import IDLE_SECONDS, Manager

CONNECT_SECONDS = 2.0
MAX_COMPLAINT = 64 << 10
REFUSING = 400  # from this status on, the request failed
FAILING = 500  # from this status on, the manager failed and not the request


class Answering(Protocol):
    """The receiver of an answer."""

    @property
    def is_repeatable(self) -> bool:
        """True if the request may also be sent to another manager."""

    @property
    def has_alternative(self) -> bool:
        """True if there is another manager that was not asked yet."""

    def answer_begins(self, status: int) -> bool:
        """Return True if the answer is to be passed on; otherwise it is read and dropped."""

    def answer_part(self, data: bytes) -> None: ...

    def answer_ends(self, closes: bool) -> None: ...

    def answer_fails(self, reason: str, begun: bool) -> None: ...


class Upstream(asyncio.Protocol):
    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.deadline = 0.0
        self.asked_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser
        self._client: Answering | None = None
        self._is_head = False
        self._begun = False
        self._passing = True
        self._said = b""
        self._complete = False
        self._keep = False
        self._lost = False
        self._idle_since = 0.0

    @classmethod
    async def connect(cls, manager: Manager) -> "Upstream":
        async with asyncio.timeout(CONNECT_SECONDS):
            _, upstream = await asyncio.get_running_loop().create_connection(
                lambda: cls(manager), manager.host, manager.port
            )
        return upstream

    def ask(self, request: bytes, client: Answering, *, is_head: bool, deadline: float) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._client = client
        self._is_head = is_head
        self._begun = self._complete = False
        self._passing = True
        self._said = b""
        self.deadline = deadline
        self.asked_at = self._loop.time()
        self._transport.write(request)

    @property
    def has_begun(self) -> bool:
        return self._begun

    @property
    def is_repeatable(self) -> bool:
        return self._client is not None and self._client.is_repeatable

    @property
    def has_alternative(self) -> bool:
        return self._client is not None and self._client.has_alternative

    @property
    def is_passing(self) -> bool:
        return self._passing

    @property
    def status(self) -> int:
        """The status of an answer that has begun."""
        return int(self._parser.get_status_code())

    @property
    def complaint(self) -> str:
        """The manager's message, from an answer that is not passed on."""
        try:
            return str(msgspec.json.decode(self._said)["message"])
        except (msgspec.DecodeError, KeyError, TypeError):
            return f"answered with status {self.status}"

    def is_usable(self, now: float) -> bool:
        return not self._lost and now - self._idle_since < IDLE_SECONDS

    def give_up(self, reason: str) -> None:
        """Stop waiting for the answer."""
        self._transport.abort()
        self._fail(reason)

    def leave(self) -> None:
        """End the connection after its client has left, because its answer has no receiver."""
        self._client = None
        self._transport.abort()

    @property
    def is_paused(self) -> bool:
        return not self._transport.is_reading()

    def pause(self) -> None:
        if not self._lost:
            self._transport.pause_reading()

    def resume(self) -> None:
        if not self._lost:
            self._transport.resume_reading()

    def close(self) -> None:
        self._transport.close()

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        client = self._client
        self.manager.heard_at = self._loop.time()
        if client is None:  # no request is open
            self._transport.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()
            self._fail("sent something that is not HTTP")
            return
        if self._begun and self._passing:
            client.answer_part(data)
        if self._complete:
            self._finish(keep=self._keep)

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = True
        if self._client is None:
            return
        if self._begun and not self._complete and not self._keep:
            self._finish(keep=False)  # the end of the connection ends the answer
        else:
            self._fail("closed the connection")

    def _finish(self, *, keep: bool) -> None:
        client, self._client = self._client, None
        if keep and not self._lost:
            self._transport.resume_reading()  # a slow client may have paused reading at the very end
            self._idle_since = self._loop.time()
            self.manager.idle.append(self)
        else:
            self._transport.close()
        assert client is not None
        client.answer_ends(closes=not keep)

    def _fail(self, reason: str) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.answer_fails(reason, self._begun and self._passing)

    # httptools

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return
        self._begun = True
        self._keep = self._parser.should_keep_alive()  # the parser forgets this when the message is complete
        assert self._client is not None
        self._passing = self._client.answer_begins(status)
        if self._is_head:
            self._complete = True

    def on_body(self, body: bytes) -> None:
        if not self._passing and len(self._said) < MAX_COMPLAINT:
            self._said += body

    def on_message_complete(self) -> None:
        if self._begun:
            self._complete = True
