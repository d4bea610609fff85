"""`nuncius console`: the web console, by hand. Nodes have one at /console on their HTTP port."""

import contextlib
import logging
import signal
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated

import typer

from nuncius.cli.node_options import (
    Host,
    HowMuchToLog,
    HowToLog,
    LogFormat,
    LogLevel,
    TrustedProxy,
    addresses,
    leave,
    one_store,
    port,
)

CHANGES = "nuncius.console.changes"


def register(app: typer.Typer) -> None:
    app.command()(console)


def console(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where the embedded PostgreSQL keeps its data. Default: as for `nuncius up`."),
    ] = None,
    store: Annotated[
        str | None, typer.Option(metavar="DSN", help="The store: this PostgreSQL (15 or newer).")
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
    one_store(data_dir, store)
    proxies = addresses(trusted_proxy)
    wanted = port("--port", http_port)
    if wanted is None:
        raise typer.BadParameter("a console without a port is none", param_hint="--port")
    from nuncius.cli import embedding
    from nuncius.cli.node import cannot_listen, warn_of_strangers
    from nuncius.doors.http.door import listen

    _log(log_level, log_format)
    warn_of_strangers(host)
    with contextlib.ExitStack() as stack:
        try:
            listening = stack.enter_context(listen(host, wanted))
        except OSError as error:
            raise cannot_listen("console", host, wanted, error) from error
        if store is None:
            data_dir = (data_dir or embedding.default_data_dir()).absolute()
            store = stack.enter_context(embedding.hosted(data_dir)).dsn
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/console"
        _serve(
            *(store, listening),
            read_only=read_only,
            ready=lambda: typer.echo(f"The console is at {address}"),
            trusted_proxies=proxies,
        )


def _obey() -> int:
    """A node's console: it says once on stdout whether it runs, and ends with its leash."""
    import socket

    import msgspec

    from nuncius.cli.console_keeper import Orders, Report
    from nuncius.cli.errors import explain

    def report(error: str = "") -> None:
        sys.stdout.buffer.write(msgspec.json.encode(Report(error)) + b"\n")
        sys.stdout.buffer.flush()

    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as unbuffered:
        orders = msgspec.json.decode(unbuffered.readline(), type=Orders)
    _log(orders.log_level, orders.log_format)
    try:
        with socket.socket(fileno=orders.socket) as listening:
            _serve(
                *(orders.dsn, listening),
                read_only=orders.read_only,
                ready=report,
                on_leash=True,
                trusted_proxies=("127.0.0.1",),  # the node before it
            )
    except Exception as error:
        logging.getLogger(__name__).debug("the console failed", exc_info=True)
        report(explain(error))
        return 1
    return 0


def _log(level: str, style: str) -> None:
    from nuncius.cli import logs

    logs.configure(level, style)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # What somebody changes is worth a line at any level.
    logging.getLogger(CHANGES).setLevel(logging.INFO)


def _serve(
    dsn: str,
    listening: object,
    *,
    read_only: bool,
    ready: Callable[[], object],
    on_leash: bool = False,
    trusted_proxies: Collection[str] = (),
) -> None:
    import asyncio
    import socket

    from nuncius.cli.node import NodeError
    from nuncius.cli.stopping import stop_event

    try:
        from nuncius.console import server
    except ModuleNotFoundError as error:
        raise NodeError(
            f"the console needs a package that is not installed ({error.name}): "
            "install nuncius[console], or run ./nuncius console once in a checkout"
        ) from error

    assert isinstance(listening, socket.socket)

    async def serve() -> None:
        stop = stop_event(on_leash=on_leash)
        await server.serve(
            *(dsn, listening, stop, ready),
            read_only=read_only,
            may_sleep=on_leash,
            trusted_proxies=trusted_proxies,
        )

    asyncio.run(serve())
