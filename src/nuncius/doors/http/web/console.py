"""Proxy /console to the console's own process and port.

Requests and answers are passed on unread. Only people use the console, so one connection per request is fast
enough.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import httptools
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from nuncius.cluster.proxies import FORWARDED_FOR, FORWARDED_USER, Proxies
from nuncius.doors.http.exchange import Receive, Scope, Send
from nuncius.doors.http.web.origins import Origins

PATH = b"/console"
LOOPBACK = "127.0.0.1"
START_SECONDS = 300.0  # the first request starts the console, and may have to install it
READ_BYTES = 1 << 16
MAX_REQUEST = 16 << 20
MAX_MESSAGE = 16 << 20
_OF_THE_CONNECTION = frozenset(
    (b"date", b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer")
)
_OURS = frozenset((b"host", b"x-forwarded-host", FORWARDED_FOR, FORWARDED_USER, b"content-length"))


def is_console(path: bytes) -> bool:
    return path == PATH or path.startswith(PATH + b"/")


class Console:
    def __init__(self, port: int, origins: Origins | None = None, proxies: Proxies | None = None) -> None:
        self._port = port
        self._origins = origins or Origins()
        self._proxies = proxies or Proxies()

    async def http(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Forward one request and return the status of its answer."""
        body = await _body(receive)
        if len(body) > MAX_REQUEST:
            return await _refuse(send, 413, f"a request has at most {MAX_REQUEST} bytes")
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(START_SECONDS):
                reader, writer = await asyncio.open_connection(LOOPBACK, self._port)
                writer.write(_request(scope, body, self._port, self._visitor(scope)))
                answer = _Answer()
                await answer.read_head(reader)
        except (OSError, TimeoutError, httptools.HttpParserError):
            if writer is not None:
                writer.close()
            return await _refuse(send, 503, "the console did not start; the node's log says why")
        try:
            await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
            while not answer.complete:
                await send({"type": "http.response.body", "body": answer.taken(), "more_body": True})
                await answer.read(reader)
            await send({"type": "http.response.body", "body": answer.taken()})
        finally:
            writer.close()
        return answer.status

    async def websocket(self, socket: WebSocket) -> None:
        path = quote(socket.scope["path"])
        query = socket.scope["query_string"].decode("latin-1")
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in socket.scope["headers"]
            if name in (b"cookie", b"user-agent")
        ]
        headers += [(name.decode(), value.decode("latin-1")) for name, value in self._visitor(socket.scope)]
        origin: Any = socket.headers.get("origin")
        try:
            upstream = await connect(
                f"ws://{LOOPBACK}:{self._port}{path}?{query}",
                origin=origin,
                additional_headers=headers,
                compression=None,
                proxy=None,
                max_size=MAX_MESSAGE,
            )
        except (OSError, TimeoutError, WebSocketException):
            await socket.close(1013)
            return
        await socket.accept()
        both = [asyncio.ensure_future(each) for each in (_up(socket, upstream), _down(socket, upstream))]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
                with contextlib.suppress(
                    asyncio.CancelledError, WebSocketDisconnect, WebSocketException, RuntimeError, OSError
                ):
                    await task
            await upstream.close()
            with contextlib.suppress(RuntimeError, OSError, WebSocketDisconnect):
                await socket.close(1001)

    def _visitor(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        """Return headers that tell the console the visitor's address, its name if a trusted proxy gives one,
        and the host that the browser asked for: the console compares that with the site that a request is
        from. A site that the settings allow counts as the node's own host."""
        client = scope.get("client")
        peer = client[0] if client else None
        headers: dict[bytes, bytes] = dict(scope["headers"])
        origin = headers.get(b"origin", b"")
        host = headers.get(b"x-forwarded-host", headers.get(b"host", b""))
        if origin and self._origins.is_allowed(origin.decode("latin-1")):
            host = origin.partition(b"://")[2]
        return [
            (b"x-forwarded-host", host),
            (FORWARDED_FOR, self._proxies.client(peer, headers).encode("latin-1")),
            (FORWARDED_USER, self._proxies.user(peer, headers).encode()),
        ]


async def _up(socket: WebSocket, upstream: ClientConnection) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        text = message.get("text")
        await upstream.send(message["bytes"] if text is None else text)


async def _down(socket: WebSocket, upstream: ClientConnection) -> None:
    async for message in upstream:
        if isinstance(message, str):
            await socket.send_text(message)
        else:
            await socket.send_bytes(message)


class _Answer:
    """The part of the console's answer that has arrived."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False
        self._begun = False
        self._parts: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)

    @property
    def status(self) -> int:
        return self._parser.get_status_code()

    async def read_head(self, reader: asyncio.StreamReader) -> None:
        while not self._begun:
            await self.read(reader)

    async def read(self, reader: asyncio.StreamReader) -> None:
        data = await reader.read(READ_BYTES)
        if not data:
            if not self._begun:
                raise ConnectionResetError
            self.complete = True  # the end of the connection ends this answer
            return
        self._parser.feed_data(data)

    def taken(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in _OF_THE_CONNECTION:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._begun = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self.complete = True


async def _body(receive: Receive) -> bytes:
    """Return the body of a request; if it is too large, only enough of it to tell."""
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= MAX_REQUEST:
        message = await receive()
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
    return b"".join(parts)


def _request(scope: Scope, body: bytes, port: int, visitor: Iterable[tuple[bytes, bytes]]) -> bytes:
    target: bytes = scope["raw_path"]
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    # The answer ends with its connection at the latest, so its end need not be found.
    lines = [scope["method"].encode() + b" " + target + b" HTTP/1.1", b"connection: close"]
    lines += [
        name + b": " + value
        for name, value in scope["headers"]
        if name not in _OF_THE_CONNECTION and name not in _OURS
    ]
    lines += [b"host: %s:%d" % (LOOPBACK.encode(), port)]
    lines += [name + b": " + value for name, value in visitor]
    lines += [b"content-length: %d" % len(body), b"", body]
    return b"\r\n".join(lines)


async def _refuse(send: Send, status: int, reason: str) -> int:
    text = f"{reason}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
    return status
