"""One request and its answer: a thin layer over ASGI, because every message takes this path."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl

from nuncius.broker.caller import Caller
from nuncius.broker.errors import InvalidInput, TooLarge
from nuncius.broker.model import Pressure
from nuncius.doors.http.connection import codings
from nuncius.doors.http.connection.codings import WORTHWHILE
from nuncius.doors.replies import Replies

if TYPE_CHECKING:
    from nuncius.doors.http.connection.http import HttpConnection

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
MAX_QUERY_FIELDS = 100
REFUSED = 400  # from this status on an answer is an error: short, and often read by programs without gzip
CONNECTION = "nuncius.connection"
"""The key of the connection in a request's scope."""

T = TypeVar("T")


class Disconnected(Exception):
    """The client has disconnected, or the node stops: there is no answer to send."""


class Exchange:
    __slots__ = (
        "_receive",
        "_send",
        "accepted",
        "begun",
        "caller",
        "closing",
        "connection",
        "cycle",
        "headers",
        "pressure",
        "scope",
        "share",
        "status",
    )

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, pressure: Pressure, closing: asyncio.Event
    ) -> None:
        self.scope = scope
        self.connection: HttpConnection = scope[CONNECTION]
        self.caller: Caller = self.connection.caller
        self.cycle: Any = self.connection.answering
        self.accepted = 0
        self.headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        """The first header of each (lower case) name."""
        self._receive = receive
        self._send = send
        self.pressure = pressure
        self.closing = closing
        self.share: Callable[[Headers], Headers] | None = None
        """Adds the headers with which pages of another site may read the answer."""
        self.begun = False
        self.status = 500

    @property
    def method(self) -> str:
        return self.scope["method"]  # type: ignore[no-any-return]

    def header(self, name: bytes) -> str | None:
        """Return the first header of that (lower case) name."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def query(self) -> dict[str, str]:
        """Return the fields of the query string; of several with the same name the last."""
        text: bytes = self.scope["query_string"]
        if not text:
            return {}
        try:
            pairs = parse_qsl(
                text.decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=MAX_QUERY_FIELDS,
            )
        except ValueError:
            raise InvalidInput("the query string is not valid UTF-8, or has too many fields") from None
        return dict(pairs)

    async def body(self, most: int, *, is_wanted: bool = True) -> bytes:
        """Return the whole body, without its content coding if `is_wanted`. Nothing is read while the node is
        overloaded."""
        if self.connection.flow.write_paused:
            await self.connection.writable()
        if self.pressure.is_high:
            await self._relieved()
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body: bytes = message["body"]
        if message["more_body"]:
            body = await self._with_the_rest(body, most)
        if len(body) > most:
            raise TooLarge(f"the body of this request has at most {most} bytes")
        if body and is_wanted and b"content-encoding" in self.headers:
            body = await codings.decoded(body, self._codings(), most, self.connection.footprint)
        if body:
            self.accepted = len(body)
            self.pressure.add(len(body))
        return body

    def _codings(self) -> str:
        """Return the content codings of the body, from all headers."""
        named = [value for name, value in self.scope["headers"] if name == b"content-encoding"]
        return b", ".join(named).decode("latin-1")

    def done(self) -> None:
        """Stop counting the request as open."""
        self.pressure.remove(self.accepted)
        self.accepted = 0

    @property
    def replies(self) -> Replies:
        """The connection's limit on concurrent lookups of large answers."""
        return self.connection.replies

    async def _with_the_rest(self, first: bytes, most: int) -> bytes:
        """Return the body that begins with `first`; if it is too large, only enough of it to tell."""
        parts, size, more = [first], len(first), True
        footprint = self.connection.footprint
        try:
            while more and size <= most:
                footprint.begin(size)
                if self.pressure.is_high:
                    await self._relieved()
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                parts.append(message["body"])
                size += len(parts[-1])
                more = message["more_body"]
            return b"".join(parts)
        finally:
            footprint.begin(0)
            parts.clear()  # otherwise the traceback of an error would keep them

    async def _relieved(self) -> None:
        relieved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def resume() -> None:
            if not relieved.done():
                relieved.set_result(None)

        self.pressure.when_relieved(resume)
        try:
            await relieved
        finally:
            self.pressure.forget(resume)

    async def answer(
        self, status: int, content: bytes, content_type: bytes = JSON, headers: Headers = ()
    ) -> None:
        if len(content) > WORTHWHILE and status < REFUSED and codings.is_textual(content_type):
            accepted = self.header(b"accept-encoding")
            headers = [*headers, codings.VARY]
            if accepted is not None and codings.accepts_gzip(accepted):
                content = await codings.compressed(content)
                headers.append(codings.GZIPPED)
        size = b"%d" % len(content)
        head = ((b"content-type", content_type), (b"content-length", size), *headers)
        await self._answer(status, head, content)

    async def nothing(self, status: int, headers: Headers = ()) -> None:
        """Send an answer without a body, which may not even have a content-length of 0."""
        await self._answer(status, headers, b"")

    async def _answer(self, status: int, headers: Headers, content: bytes) -> None:
        self.begun = True
        self.status = status
        if self.accepted:
            self.done()
        connection = self.connection
        if connection.flow.write_paused:
            await connection.flow.drain()
        connection.answer(self.cycle, status, headers if self.share is None else self.share(headers), content)

    async def begin(self, status: int, content_type: bytes, headers: Headers = ()) -> None:
        """Begin a streamed answer."""
        self.begun = True
        self.status = status
        headers = [(b"content-type", content_type), *headers]
        if self.share is not None:
            headers = self.share(headers)
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def more(self, content: bytes) -> None:
        """Send a piece of a streamed answer. Wait while the client does not keep up."""
        await self._send({"type": "http.response.body", "body": content, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    async def while_connected(self, work: Awaitable[T]) -> T:
        """Return the result of work that may take long. Give it up when the client disconnects or the node
        stops. Call this after the body has been read."""
        working = asyncio.ensure_future(work)
        leaving = [asyncio.ensure_future(self._gone()), asyncio.ensure_future(self.closing.wait())]
        try:
            await asyncio.wait([working, *leaving], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise Disconnected
            return working.result()
        finally:
            for task in (working, *leaving):
                task.cancel()
            for task in (working, *leaving):
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
