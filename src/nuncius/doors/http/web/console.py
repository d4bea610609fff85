"""Proxy /console to the console's own process and port.

Requests and answers are passed on unread, as the balancer passes them on to managers.
"""

import asyncio
import contextlib
import math
from typing import Any
from urllib.parse import quote

from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from nuncius.broker import future
from nuncius.broker.errors import TooLarge
from nuncius.cluster.proxies import FORWARDED_FOR, FORWARDED_USER, Proxies
from nuncius.cluster.reverse_proxy.requests import HOP_BY_HOP, encode
from nuncius.cluster.reverse_proxy.upstream import Backend, Upstream
from nuncius.doors.http.exchange import TEXT, Disconnected, Exchange, Scope
from nuncius.doors.http.web.origins import Origins

PATH = b"/console"
LOOPBACK = "127.0.0.1"
START_SECONDS = 300.0  # the first request starts the console, and may have to install it
MAX_REQUEST = 16 << 20
MAX_MESSAGE = 16 << 20
_OURS = frozenset((b"host", b"x-forwarded-host", FORWARDED_FOR, FORWARDED_USER))


def is_console(path: bytes) -> bool:
    return path == PATH or path.startswith(PATH + b"/")


class ConsoleProxy:
    def __init__(self, port: int, origins: Origins | None = None, proxies: Proxies | None = None) -> None:
        self._backend = Backend(LOOPBACK, port)
        self._origins = origins or Origins()
        self._proxies = proxies or Proxies()

    def close(self) -> None:
        self._backend.close()

    async def pass_on(self, exchange: Exchange) -> None:
        """Forward one request, and its answer."""
        try:
            body = await exchange.body(MAX_REQUEST, is_wanted=False)
        except TooLarge as error:
            await exchange.answer(413, f"{error}\n".encode(), TEXT)
            return
        passage = _Passage(exchange)
        try:
            await exchange.while_connected(self._ask(passage, self._request(exchange.scope, body)))
        except (OSError, TimeoutError):
            if exchange.begun:
                exchange.connection.transport.abort()  # part of an answer cannot be taken back
                raise Disconnected from None
            await exchange.answer(503, b"the console did not start; the node's log says why\n", TEXT)

    async def _ask(self, passage: "_Passage", request: bytes) -> None:
        async with asyncio.timeout(START_SECONDS) as passage.patience:
            now = asyncio.get_running_loop().time()
            upstream = self._backend.take_idle(now) or await self._backend.connect()
            await passage.through(upstream, request)

    def _request(self, scope: Scope, body: bytes) -> bytes:
        target: bytes = scope["raw_path"]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        headers = [each for each in scope["headers"] if each[0] not in HOP_BY_HOP and each[0] not in _OURS]
        headers += [(b"host", str(self._backend).encode()), *self._visitor(scope)]
        return encode(scope["method"].encode(), target, headers, body)

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
                f"ws://{self._backend}{path}?{query}",
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


class _Passage:
    """Sends the console's answer on to the browser as it arrives."""

    patience: asyncio.Timeout

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._connection, self._cycle = exchange.connection, exchange.cycle

    async def through(self, upstream: Upstream, request: bytes) -> None:
        self._ended, self._end = future.new()
        self._connection.upstream = upstream
        try:
            is_head = self._exchange.method == "HEAD"
            upstream.ask(request, self, is_head=is_head, deadline=math.inf)
            await self._ended
        except BaseException:
            self._connection.upstream = None
            upstream.leave()
            raise

    def answer_begins(self, status: int) -> bool:
        self.patience.reschedule(None)
        self._exchange.begun = True
        self._exchange.status = status
        return True

    def answer_part(self, data: bytes) -> None:
        self._connection.pass_on(self._cycle, data)

    def answer_ends(self, closes: bool) -> None:
        self._cycle.keep_alive = self._cycle.keep_alive and not closes
        self._connection.upstream = None
        self._connection.end_answer(self._cycle)
        self._end(None)

    def answer_refused(self, status: int, content: bytes) -> None:
        raise AssertionError("every answer is passed on")

    def answer_fails(self, reason: str, begun: bool) -> None:
        self._end(ConnectionError(reason))
