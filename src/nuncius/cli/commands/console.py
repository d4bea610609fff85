"""`nuncius console`: the web console, by hand. Nodes have one at /console on their HTTP port."""

import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated

import typer

from nuncius.cli.commands.nodes.options import (
    Host,
    HowMuchToLog,
    HowToLog,
    LogFormat,
    LogLevel,
    TrustedProxy,
    addresses,
    port,
)
from nuncius.cli.stores import one_store
from nuncius.node.starting import leave

CHANGES = "nuncius.console.changes"


def register(app: typer.Typer) -> None:
    app.command()(console)


def console(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where the embedded PostgreSQL keeps its data. Default: as for `nuncius up`."),
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="DSN", help="The store: this PostgreSQL. Default: $NUNCIUS_STORE.")
    ] = None,
    host: Host = "127.0.0.1",
    http_port: Annotated[
        str, typer.Option("--port", metavar="PORT", help="Where to listen. 0: any free one.")
    ] = "5080",
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything, change nothing.")] = False,
    trusted_proxy: TrustedProxy = None,
    log_level: HowMuchToLog = LogLevel.WARNING,
    log_format: HowToLog = LogFormat.TEXT,
    on_leash: Annotated[
        bool, typer.Option(hidden=True, help="Take orders from stdin; stop when it ends.")
    ] = False,
) -> None:
    """Open the web console on a store. Ctrl-C or SIGTERM stops it."""
    signal.signal(signal.SIGTERM, leave)
    if on_leash:
        sys.exit(_obey())
    data_dir, store = one_store(data_dir, store)
    proxies = addresses(trusted_proxy)
    wanted = port("--port", http_port)
    if wanted is None:
        raise typer.BadParameter("a console without a port is none", param_hint="--port")
    from nuncius.doors.listening import close, listen, port_of
    from nuncius.node import embedding
    from nuncius.node.node import cannot_listen, warn_if_exposed

    _log(log_level, log_format)
    warn_if_exposed(host)
    with contextlib.ExitStack() as stack:
        try:
            sockets = listen(host, wanted)
        except OSError as error:
            raise cannot_listen("console", host, wanted, error) from error
        stack.callback(close, sockets)
        dsn, _ = stack.enter_context(embedding.opened(data_dir, store))
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{port_of(sockets)}/console"
        _serve(
            *(dsn, sockets),
            read_only=read_only,
            ready=lambda: typer.echo(f"The console is at {address}"),
            trusted_proxies=proxies,
        )


def _obey() -> int:
    """Serve a node's console: report once on stdout whether it runs, and end when stdin ends."""
    from nuncius.cli.errors import explain
    from nuncius.node import child
    from nuncius.node.console_process import ConsoleOrders, ConsoleReport

    orders = child.read_orders(ConsoleOrders)
    _log(orders.log_level, orders.log_format)
    try:
        with socket.socket(fileno=orders.socket) as listening:
            _serve(
                *(orders.dsn, [listening]),
                read_only=orders.read_only,
                ready=lambda: child.report(ConsoleReport()),
                on_leash=True,
                trusted_proxies=("127.0.0.1",),  # the node, which forwards the requests
            )
    except Exception as error:
        logging.getLogger(__name__).debug("the console failed", exc_info=True)
        child.report(ConsoleReport(explain(error)))
        return 1
    return 0


def _log(level: str, style: str) -> None:
    from nuncius.node import logs

    logs.configure(level, style)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # Log every change that is made in the console, at any level.
    logging.getLogger(CHANGES).setLevel(logging.INFO)


def _serve(
    dsn: str,
    sockets: list[socket.socket],
    *,
    read_only: bool,
    ready: Callable[[], object],
    on_leash: bool = False,
    trusted_proxies: Collection[str] = (),
) -> None:
    import asyncio

    from nuncius.node.node import NodeError
    from nuncius.node.stopping import stop_event

    try:
        from nuncius.console import server
    except ModuleNotFoundError as error:
        raise NodeError(
            f"the console needs a package that is not installed ({error.name}): "
            "install nuncius[console], or run ./nuncius console once in a checkout"
        ) from error

    async def serve() -> None:
        stop = stop_event(on_leash=on_leash)
        await server.serve(
            *(dsn, sockets, stop, ready),
            read_only=read_only,
            may_sleep=on_leash,
            trusted_proxies=trusted_proxies,
        )

    asyncio.run(serve())
