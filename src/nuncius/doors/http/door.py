"""The HTTP port: starlette for what is asked, uvicorn for how it comes over the wire."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from nuncius.broker import Broker
from nuncius.doors.http.websocket import carry
from nuncius.doors.wire import WebSocketPath

BACKLOG = 1024
FINISH_SECONDS = 10


class _Server(uvicorn.Server):
    """uvicorn without its own ideas about signals: the node decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpDoor:
    def __init__(self, broker: Broker, websockets: tuple[WebSocketPath, ...] = ()) -> None:
        self._broker = broker
        routes: list[BaseRoute] = [Route("/livez", _alive)]
        routes += [WebSocketRoute(each.path, self._endpoint(each)) for each in websockets]
        self._app = Starlette(routes=routes)
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int, *, share_port: bool = False) -> int:
        """Listens; answers with the port, which is any free one if 0 was asked for."""
        listening = _listen(host, port, share_port)
        bound: int = listening.getsockname()[1]
        config = uvicorn.Config(
            self._app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            ws="websockets-sansio",
            ws_per_message_deflate=False,  # a little traffic saved for much work and memory
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

    async def close(self) -> None:
        """No new connections; what was asked is answered."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving

    def _endpoint(self, each: WebSocketPath):  # type: ignore[no-untyped-def]
        async def endpoint(websocket: WebSocket) -> None:
            await carry(websocket, each, self._broker.pressure)

        return endpoint


def _listen(host: str, port: int, share_port: bool) -> socket.socket:
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


async def _alive(_: Request) -> PlainTextResponse:
    return PlainTextResponse("ok\n")
