"""The HTTP port: uvicorn for how it comes over the wire, starlette for WebSockets, `App` for the rest."""

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
from nuncius.broker.counters_model import ConnectionFacts
from nuncius.broker.facts import Facts
from nuncius.broker.footprint import Watch
from nuncius.cluster.members import Members
from nuncius.doors.http import connections, ring, stats, v1
from nuncius.doors.http.app import App
from nuncius.doors.http.console import Console
from nuncius.doors.http.desk import Desk
from nuncius.doors.http.growth import Growth
from nuncius.doors.http.metrics import Metrics
from nuncius.doors.http.origins import Origins
from nuncius.doors.http.watched import WatchedWebSocket
from nuncius.doors.http.websocket import carry
from nuncius.doors.wire import WebSocketPath

BACKLOG = 1024
FINISH_SECONDS = 10
PARTITION_THRESHOLD = 1_000_000
MAX_CONNECTIONS = 10_000


class _Server(uvicorn.Server):
    """uvicorn without its own ideas about signals: the node decides when to stop."""

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
    ) -> None:
        self._broker = broker
        self._max_connections = max_connections
        facts = Facts(broker)
        self.desk = Desk(
            broker,
            Members(broker.store),
            Growth(broker, partition_threshold),
            Metrics(broker, facts),
            facts,
        )
        broker.counters.doors["http"] = self
        for each in (connections, ring, stats):
            each.take_part(broker)
        routes = [WebSocketRoute(each.path, self._endpoint(each)) for each in websockets]
        console = None if console_port is None else Console(console_port)
        if console is not None:
            routes.append(WebSocketRoute("/console/{rest:path}", console.websocket))
        self._origins = Origins(allowed_origins)
        self._app = App(self.desk, v1.OPERATIONS, Router(routes), console, self._origins)
        self._server: _Server | None = None
        self._watch = Watch(broker.limits, lambda: self._there)
        self._serving: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int, *, share_port: bool = False) -> int:
        """Listens; answers with the port, which is any free one if 0 was asked for."""
        self._origins.goes_by(host)
        listening = listen(host, port, share_port=share_port)
        bound: int = listening.getsockname()[1]
        config = uvicorn.Config(
            self._app,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            http=partial(connections.HttpConnection, self._broker, self._watch),  # type: ignore[arg-type]
            ws=partial(WatchedWebSocket, self._broker),  # type: ignore[arg-type]
            ws_per_message_deflate=False,  # a little traffic saved for much work and memory
            limit_concurrency=self._max_connections,
            ws_max_size=self._broker.limits.max_body + (64 << 10),
            timeout_graceful_shutdown=FINISH_SECONDS,
        )
        self._server = _Server(config)
        self._serving = asyncio.ensure_future(self._server.serve([listening]))
        while not self._server.started:
            await asyncio.wait([self._serving], timeout=0.01)
            if self._serving.done():
                self._serving.result()
                raise OSError("the HTTP server did not start")
        return bound

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
        """No new connections; what was asked is answered, who waits is told that it is in vain."""
        self.desk.closing.set()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        self._watch.end()

    def _endpoint(self, each: WebSocketPath):  # type: ignore[no-untyped-def]
        async def endpoint(websocket: WebSocket) -> None:
            await carry(websocket, each, self._broker)

        return endpoint


def listen(host: str, port: int, *, share_port: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share_port:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening
