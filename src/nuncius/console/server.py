"""The console's process: a broker on the store, NiceGUI's application, and an inherited listening socket."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Collection, Iterator
from typing import Any

import uvicorn
from fastapi import FastAPI
from nicegui import Client, core, ui

from nuncius.broker import Broker
from nuncius.cluster.proxies import Proxies
from nuncius.console import icon
from nuncius.console.context import Console
from nuncius.console.guard import Guard
from nuncius.console.pages import EVERY_PAGE

log = logging.getLogger(__name__)

PATH = "/console"
TITLE = "Nuncius"
SLEEP_SECONDS = 900.0  # the console ends after this time without a visit; the next visit starts it again
LOOK_SECONDS = 5.0
GIVE_UP_SECONDS = 2.0  # limit of the wait for an unavailable store at the end
PATIENCE = 2.0  # seconds that a page waits for an unavailable store before it says so


class _ConsoleServer(uvicorn.Server):
    """uvicorn without signal handlers of its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    dsn: str,
    sockets: list[socket.socket],
    stop: asyncio.Event,
    ready: Callable[[], object],
    *,
    read_only: bool = False,
    may_sleep: bool = False,
    trusted_proxies: Collection[str] = (),
) -> None:
    """Run until told to stop, or until no page has been open for a long time."""
    async with (
        Broker(dsn, patience=PATIENCE, onlooker=True) as broker,
        Console(broker, read_only=read_only, proxies=Proxies(trusted_proxies)) as console,
    ):
        server = _ConsoleServer(
            uvicorn.Config(
                application(console),
                log_config=None,
                log_level=logging.WARNING,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=2,
            )
        )
        serving = asyncio.ensure_future(server.serve(sockets))
        while not server.started and not serving.done():
            await asyncio.wait([serving], timeout=0.01)
        if not serving.done():
            ready()
        ending: list[asyncio.Future[Any]] = [asyncio.ensure_future(stop.wait())]
        if may_sleep:
            ending.append(asyncio.ensure_future(_unwatched()))
        await asyncio.wait([serving, *ending], return_when=asyncio.FIRST_COMPLETED)
        for each in ending:
            each.cancel()
        asyncio.get_running_loop().call_later(GIVE_UP_SECONDS, broker.store.give_up)
        server.should_exit = True
        await serving


def application(console: Console) -> Guard:
    for page in EVERY_PAGE:
        page.register(console)
    app = FastAPI(openapi_url=None)
    ui.run_with(
        app,
        mount_path=PATH,
        title=TITLE,
        favicon=icon.SVG,
        dark=None,
        language="en-US",
        binding_refresh_interval=None,  # nothing here is bound
        reconnect_timeout=10.0,
        tailwind=False,
        storage_secret=None,
        show_welcome_message=False,
    )
    core.app.config.socket_io_js_transports = ["websocket"]
    return Guard(app, PATH)


async def _unwatched() -> None:
    """Return when no browser has been connected for `SLEEP_SECONDS`."""
    loop = asyncio.get_running_loop()
    watched = loop.time()
    while loop.time() < watched + SLEEP_SECONDS:
        await asyncio.sleep(LOOK_SECONDS)
        if any(client.has_socket_connection for client in Client.instances.values()):
            watched = loop.time()
    log.info("no page is open; going to sleep")
