"""From a request to its endpoint."""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from nuncius.doors.http import report
from nuncius.doors.http.console import Console, is_console
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.errors import EXPECTED, Failed, Problem, failed
from nuncius.doors.http.exchange import Disconnected, Exchange, Receive, Scope, Send
from nuncius.doors.http.operations import PREFIX, Operation, Router
from nuncius.doors.http.origins import Origins
from nuncius.doors.http.plain import Plain

log = logging.getLogger(__name__)

DOOR = "http"
UNKNOWN = "unknown"
STRANGER = (
    "a page of another site asked for this, or somebody by a name that is not this node's: see --allow-origin"
)

Endpoint = Callable[[Exchange], Awaitable[None]]
WebSockets = Callable[[Scope, Receive, Send], Awaitable[None]]


class App:
    def __init__(
        self,
        desk: Desk,
        operations: Sequence[Operation],
        websockets: WebSockets,
        console: Console | None = None,
        origins: Origins | None = None,
    ) -> None:
        self._desk = desk
        self._console = console
        self._router = Router(operations)
        self._websockets = websockets
        self._admits = (origins or Origins()).admit
        self._fixed = report.Report(desk).endpoints | Plain(desk, operations).endpoints
        self._count = desk.metrics.requests.count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if self._admits(scope):
                await self._websockets(scope, receive, send)
            else:  # before it is accepted this is a 403
                await send({"type": "websocket.close"})
            return
        start = time.perf_counter()
        exchange = Exchange(scope, receive, send, self._desk.broker.pressure, self._desk.closing)
        path: bytes = scope["raw_path"]
        if path.startswith(b"//"):  # of a client whose address ends with a slash
            path = b"/" + path.lstrip(b"/")
        methods = self._fixed.get(path)
        name = UNKNOWN
        try:
            if not self._admits(scope):
                await _answer(exchange, Failed(403, "not_allowed", STRANGER))
            elif methods is not None:
                name = path.decode()
                await methods.get(scope["method"], _no_such_method)(exchange)
            elif path.startswith(PREFIX) or path == b"/v1":
                name = await self._operate(exchange, path)
            elif self._console is not None and is_console(path):
                name = "/console"
                exchange.begun = True
                exchange.status = await self._console.http(scope, receive, send)
            else:
                await report.unknown(exchange)
        except Disconnected:
            exchange.status = 499
            if self._desk.closing.is_set() and not exchange.begun:
                await _answer(exchange, Failed(503, "unavailable", "the node stops"))
        except Exception:
            log.exception("a request failed by a fault of ours", extra={"endpoint": name})
            if exchange.begun:
                raise
            await self._fault(exchange, path)
        finally:
            exchange.done()
        self._count(DOOR, name, exchange.status, time.perf_counter() - start)

    async def _operate(self, exchange: Exchange, path: bytes) -> str:
        name = UNKNOWN
        try:
            operation, values = self._router.find(exchange.method, path)
            name = operation.path
            await operation.carry_out(self._desk, exchange, values)
        except EXPECTED as error:
            if exchange.begun:
                raise
            await _answer(exchange, failed(error))
        return name

    async def _fault(self, exchange: Exchange, path: bytes) -> None:
        text = "a fault of the node; its log says more"
        if path.startswith(PREFIX):
            await _answer(exchange, Failed(500, "internal", text))
        else:
            await report.refuse(exchange, text, 500)


async def _no_such_method(exchange: Exchange) -> None:
    if exchange.scope["raw_path"].startswith(PREFIX):
        allowed = [(b"allow", b"GET, HEAD")]  # of what needs no check
        await _answer(exchange, Failed(405, "method_not_allowed", "this path takes GET, HEAD", allowed))
    else:
        await report.unknown(exchange)


async def _answer(exchange: Exchange, error: Failed) -> None:
    content = msgspec.json.encode(Problem(error.word, str(error)))
    await exchange.answer(error.status, content, headers=error.headers)
