"""The HTTP port: uvicorn speaks HTTP, starlette serves WebSockets, `App` handles the rest."""

import asyncio
import contextlib
import socket
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any

import uvicorn
from starlette.routing import Router, WebSocketRoute
from starlette.websockets import WebSocket

from nuncius.broker import Broker
from nuncius.broker.background.deadlines import DeadlineWatch
from nuncius.broker.observe.counters_model import ConnectionFacts
from nuncius.broker.observe.facts import Facts
from nuncius.broker.observe.paging import Pages
from nuncius.cluster.dialects import QueueDialect
from nuncius.cluster.members import ClusterMembers
from nuncius.cluster.proxies import Proxies
from nuncius.doors.http import ring
from nuncius.doors.http.app import App
from nuncius.doors.http.connection.http import HttpConnection
from nuncius.doors.http.connection.websocket import WebSocketConnection
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.queue_report.growth import TopicGrowth
from nuncius.doors.http.v1 import routes as v1
from nuncius.doors.http.watching import connections, consumers, stats
from nuncius.doors.http.watching.metrics import Metrics
from nuncius.doors.http.web.console import ConsoleProxy
from nuncius.doors.http.web.origins import Origins
from nuncius.doors.http.websocket import carry
from nuncius.doors.listening import BACKLOG, listen, port_of
from nuncius.doors.wire import WebSocketPath

FINISH_SECONDS = 10
PARTITION_THRESHOLD = 1_000_000
MAX_CONNECTIONS = 10_000


class _HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers: the node decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpDoor:
    def __init__(
        self,
        broker: Broker,
        websockets: tuple[WebSocketPath, ...] = (),
        *,
        partition_threshold: int = PARTITION_THRESHOLD,
        max_connections: int = MAX_CONNECTIONS,
        console_port: int | None = None,
        allowed_origins: Collection[str] = (),
        dialect: QueueDialect = QueueDialect.AUTO,
        trusted_proxies: Collection[str] = (),
    ) -> None:
        self._broker = broker
        self._max_connections = max_connections
        facts = Facts(broker)
        self.desk = Desk(
            broker,
            ClusterMembers(broker.store),
            TopicGrowth(broker, partition_threshold),
            Metrics(broker, facts),
            facts,
            Pages(broker),
        )
        broker.counters.doors["http"] = self
        for each in (connections, consumers, ring, stats):
            each.take_part(broker)
        routes = [WebSocketRoute(each.path, self._endpoint(each)) for each in websockets]
        self._origins = Origins(allowed_origins)
        proxies = Proxies(trusted_proxies)
        self._console = None if console_port is None else ConsoleProxy(console_port, self._origins, proxies)
        if self._console is not None:
            routes.append(WebSocketRoute("/console/{rest:path}", self._console.websocket))
        self._app = App(self.desk, v1.OPERATIONS, Router(routes), self._console, self._origins, dialect)
        self._server: _HttpServer | None = None
        self._watch = DeadlineWatch(broker.limits, lambda: self._there)
        self._serving: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int, *, sockets: Sequence[socket.socket] = ()) -> int:
        """Serve these listening sockets, or new ones for the address. Return the port."""
        self._origins.goes_by(host)
        sockets = list(sockets or listen(host, port))
        bound = port_of(sockets)
        config = uvicorn.Config(
            self._app,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            http=partial(HttpConnection, self._broker, self._watch),  # type: ignore[arg-type]
            ws=partial(WebSocketConnection, self._broker),  # type: ignore[arg-type]
            ws_per_message_deflate=False,  # a little traffic saved for much work and memory
            limit_concurrency=self._max_connections,
            ws_max_size=self._broker.limits.max_body + (64 << 10),
            timeout_graceful_shutdown=FINISH_SECONDS,
            backlog=BACKLOG,
        )
        self._server = _HttpServer(config)
        self._serving = asyncio.ensure_future(self._server.serve(sockets))
        while not self._server.started:
            await asyncio.wait([self._serving], timeout=0.01)
            if self._serving.done():
                self._serving.result()
                raise OSError("the HTTP server did not start")
        return bound

    @property
    def is_open(self) -> bool:
        return self._server is not None

    @property
    def connections(self) -> int:
        return len(self.list_connections())

    def list_connections(self) -> Sequence[ConnectionFacts]:
        return connections.list_connections(self._there)

    def disconnect(self, connection_id: str) -> bool:
        return connections.disconnect(self._there, connection_id)

    @property
    def _there(self) -> set[Any]:
        return set() if self._server is None else self._server.server_state.connections

    async def close(self) -> None:
        """Accept no new connections, answer open requests, and end those that wait for messages."""
        self.desk.closing.set()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        if self._console is not None:
            self._console.close()
        self._watch.end()

    def _endpoint(self, each: WebSocketPath):  # type: ignore[no-untyped-def]
        async def endpoint(websocket: WebSocket) -> None:
            await carry(websocket, each, self._broker)

        return endpoint
