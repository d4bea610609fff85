"""Route a request to its endpoint."""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from nuncius.cluster.dialects import QueueDialect
from nuncius.doors.http.api.operations import PREFIX, Operation, OperationRouter
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.errors import EXPECTED, Failed, failed, problem
from nuncius.doors.http.exchange import Disconnected, Exchange, Receive, Scope, Send
from nuncius.doors.http.fixed import OTHER, endpoints
from nuncius.doors.http.queue_report import report
from nuncius.doors.http.web import cors
from nuncius.doors.http.web.console import ConsoleProxy, is_console
from nuncius.doors.http.web.origins import Origins

log = logging.getLogger(__name__)

DOOR = "http"
UNKNOWN = "unknown"

WebSockets = Callable[[Scope, Receive, Send], Awaitable[None]]


class App:
    def __init__(
        self,
        desk: Desk,
        operations: Sequence[Operation],
        websockets: WebSockets,
        console: ConsoleProxy | None = None,
        origins: Origins | None = None,
        dialect: QueueDialect = QueueDialect.AUTO,
    ) -> None:
        self._desk = desk
        self._console = console
        self._router = OperationRouter(operations)
        self._websockets = websockets
        self._origins = origins or Origins()
        self._refusal = self._origins.refusal
        self._shares = self._origins.has_named
        self._fixed = endpoints(desk, operations, dialect)
        self._count = desk.metrics.requests.count
        self._pressure = desk.broker.pressure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._open(scope, receive, send)
            return
        start = time.perf_counter()
        raw: bytes = scope["raw_path"]  # with two slashes if the client's base URL ends with one
        path = b"/" + raw.lstrip(b"/") if raw.startswith(b"//") else raw
        exchange = Exchange(scope, receive, send, self._pressure, self._desk.closing)
        if self._shares and not is_console(path):
            exchange.share = cors.sharing(self._origins, scope)
        methods = self._fixed.get(path)
        refusal = self._refusal(scope)
        name = UNKNOWN
        try:
            if refusal is not None:
                await _refuse(exchange, path, refusal)
            elif methods is not None:
                name = path.decode()
                await (methods.get(scope["method"]) or methods[OTHER])(exchange)
            elif path.startswith(PREFIX) or path == b"/v1":
                name = await self._operate(exchange, path)
            elif self._console is not None and is_console(path):
                name = "/console"
                await self._console.pass_on(exchange)
            else:
                await report.refuse(exchange, "There is nothing at this path; see /docs", 404)
        except Disconnected:
            exchange.status = 499
            if self._desk.closing.is_set() and not exchange.begun:
                await _refuse(exchange, path, Failed(503, "unavailable", "the node stops"))
        except Exception:
            log.exception("a request failed by a fault of ours", extra={"endpoint": name})
            if exchange.begun:
                raise
            text = "a fault of the node; its log says more"
            await _refuse(exchange, path, Failed(500, "internal", text))
        finally:
            if exchange.accepted:
                exchange.done()
        self._count(DOOR, name, exchange.status, time.perf_counter() - start)

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._origins.admit(scope):
            await self._websockets(scope, receive, send)
        else:  # before acceptance this is a 403
            await send({"type": "websocket.close"})

    async def _operate(self, exchange: Exchange, path: bytes) -> str:
        name = UNKNOWN
        try:
            operation, values = self._router.find(exchange.scope["method"], path)
            name = operation.path
            await operation.carry_out(self._desk, exchange, values)
        except EXPECTED as error:
            if exchange.begun:
                raise
            await _refuse(exchange, path, failed(error))
        return name


async def _refuse(exchange: Exchange, path: bytes, error: Failed) -> None:
    """Answer with an error, in the form of the API that the path belongs to."""
    if path.startswith(b"/v1"):
        await exchange.answer(error.status, problem(error.word, str(error)), headers=error.headers)
    else:
        await report.refuse(exchange, str(error), error.status, error.headers)
