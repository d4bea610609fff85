"""`nuncius up`: a node, with an embedded PostgreSQL or on an existing one."""

import contextlib
import importlib
import threading
from pathlib import Path
from typing import Annotated

import typer

from nuncius.cli.commands.nodes.options import NODE_OPTIONS, NodeOptions, TrustedProxy, addresses, ports
from nuncius.cli.stores import one_store
from nuncius.node import listeners
from nuncius.node.starting import begin, remove_stale


def register(app: typer.Typer) -> None:
    app.command()(up)


def up(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where the embedded PostgreSQL keeps its data. Default: $NUNCIUS_DATA_DIR, "
            "or nuncius in the user's data directory."
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="DSN", help="Use this PostgreSQL, start none. Default: $NUNCIUS_STORE."),
    ] = None,
    telesto_port: Annotated[
        str,
        typer.Option(
            metavar="PORT", help="For the native protocol and Telesto. 0: any free one; off: closed."
        ),
    ] = "9001",
    stomp_port: Annotated[
        str, typer.Option(metavar="PORT", help="For STOMP. 0: any free one; off: closed.")
    ] = "55664",
    zeromq_port: Annotated[
        str, typer.Option(metavar="PORT", help="For ZeroMQ. 0: any free one; off: closed.")
    ] = "5555",
    http_port: Annotated[
        str, typer.Option(metavar="PORT", help="For HTTP and WebSockets. 0: any free one; off: closed.")
    ] = "5000",
    tribbler_port: Annotated[
        str, typer.Option(metavar="PORT", help="For Tribbler (Go RPC). 0: any free one; off: closed.")
    ] = "9009",
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes behind the same ports.")] = 1,
    store_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Let the embedded PostgreSQL also listen on this port of 127.0.0.1, "
            "with the password in the data directory.",
        ),
    ] = None,
    hold_ms: Annotated[
        float, typer.Option(min=0, max=10_000, help="How long a Telesto read that finds nothing waits.")
    ] = 40.0,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write what every Telesto request took to Parquet files here."),
    ] = None,
    max_connections: Annotated[int, typer.Option(min=1, help="Connections of a door, at most.")] = 10_000,
    max_attempts: Annotated[
        int, typer.Option(min=1, max=10_000, help="Failed deliveries that make a message a dead letter.")
    ] = 10,
    retry_delay: Annotated[
        float, typer.Option(min=0, max=86_400, help="Seconds from a failed delivery to the next.")
    ] = 2.0,
    trusted_proxy: TrustedProxy = None,
    read_only_console: Annotated[
        bool, typer.Option("--read-only-console", help="The console at /console shows and changes nothing.")
    ] = False,
    options: NodeOptions = NODE_OPTIONS,
) -> None:
    """Start a node. Ctrl-C or SIGTERM stops it, after it has answered what it accepted."""
    data_dir, store = one_store(data_dir, store)
    if store is not None and store_port is not None:
        raise typer.BadParameter("is for the embedded server only", param_hint="--store-port")
    numbers = ports(
        telesto=telesto_port, stomp=stomp_port, zeromq=zeromq_port, http=http_port, tribbler=tribbler_port
    )
    proxies = addresses(trusted_proxy)
    shared = options.settings()
    remove_stale(options.ready_file)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listeners.opened(options.host, numbers, workers))
        from nuncius.node import embedding, node, ready

        begin(options.log_level, options.log_format)
        if store is None:
            # Import it while PostgreSQL starts.
            threading.Thread(target=importlib.import_module, args=("nuncius.broker",)).start()
        store, data_dir = stack.enter_context(embedding.opened(data_dir, store, tcp_port=store_port))
        traces = None if trace is None else str(trace.absolute())
        settings = node.NodeSettings(
            store,
            ports=node.Ports(**listening.ports),
            trace=traces,
            hold=hold_ms / 1000,
            max_connections=max_connections,
            max_attempts=max_attempts,
            retry_delay=retry_delay,
            read_only_console=read_only_console,
            trusted_proxies=proxies,
            **shared,
        )
        announce = ready.Announcement(
            store, file=options.ready_file, data_dir=data_dir, on_leash=options.on_leash
        )
        if workers == 1:
            node.run(settings, announce, listening.sockets[0])
        else:
            from nuncius.node import supervisor

            supervisor.run(
                settings, listening, announce, log_level=options.log_level, log_format=options.log_format
            )
