"""`nuncius node`: one of several nodes that share the work, with one or more roles."""

import contextlib
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nuncius.cli.commands.nodes.options import NODE_OPTIONS, NodeOptions, port, ports
from nuncius.cli.stores import one_store
from nuncius.cluster.role_names import BALANCER, BROKER, READER, WRITER
from nuncius.node import listeners
from nuncius.node.starting import begin, remove_stale

# The report's ports, except for brokers: its 1000, 1100, ... need root on most systems.
DEFAULT_PORTS = {BALANCER: "5000", WRITER: "7001", READER: "6001", BROKER: "0"}


class Role(StrEnum):
    """The part of the work that a node does."""

    BALANCER = BALANCER
    WRITER = WRITER
    READER = READER
    BROKER = BROKER


def register(app: typer.Typer) -> None:
    app.command("node")(node)


def node(
    role: Annotated[
        list[Role] | None,
        typer.Option(help="balancer, writer, reader or broker; several times for several. Default: all."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="The common store: an embedded PostgreSQL, which all nodes with this directory share. "
            "Default: as for `nuncius up`."
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="DSN", help="The common store: this PostgreSQL. Default: $NUNCIUS_STORE."),
    ] = None,
    own_data_dir: Annotated[
        Path | None,
        typer.Option(help="A broker's own store, for its partitions: an embedded PostgreSQL here."),
    ] = None,
    own_store: Annotated[
        str | None, typer.Option(metavar="DSN", help="A broker's own store: this PostgreSQL.")
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="The address under which other nodes reach this one. Default: --host, or the machine's name "
            "if that is all addresses.",
        ),
    ] = None,
    http_port: Annotated[
        str | None,
        typer.Option(
            "--http-port",
            "--port",
            metavar="PORT",
            help="For HTTP. 0: any free one. Default: 5000 for a balancer, 7001 for a writer, 6001 for a "
            "reader, any free one for a broker.",
        ),
    ] = None,
    telesto_port: Annotated[
        str, typer.Option(metavar="PORT", help="For the native protocol and Telesto. off: closed.")
    ] = "off",
    stomp_port: Annotated[str, typer.Option(metavar="PORT", help="For STOMP. off: closed.")] = "off",
    zeromq_port: Annotated[str, typer.Option(metavar="PORT", help="For ZeroMQ. off: closed.")] = "off",
    link_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where other nodes reach this one. 0: any free one.")
    ] = 0,
    rebalance_after: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds after brokers came or went until partitions are spread over them anew. 0: never.",
        ),
    ] = 60.0,
    options: NodeOptions = NODE_OPTIONS,
) -> None:
    """Start a node of a cluster. Ctrl-C or SIGTERM stops it, after it has answered what it accepted."""
    roles = tuple(dict.fromkeys(each.value for each in role or ())) or (WRITER, READER, BROKER)
    data_dir, store = one_store(data_dir, store)
    _check(roles, data_dir, store, own_data_dir, own_store)
    wanted = port("--http-port", http_port or DEFAULT_PORTS[roles[0]])
    if wanted is None:
        raise typer.BadParameter("a node of a cluster is known by this port", param_hint="--http-port")
    numbers = ports(telesto=telesto_port, stomp=stomp_port, zeromq=zeromq_port)
    numbers |= {"http": 0 if BALANCER in roles else wanted, "tribbler": None}
    shared = options.settings()
    remove_stale(options.ready_file)
    with contextlib.ExitStack() as stack:
        only_balances = roles == (BALANCER,)
        listening = stack.enter_context(listeners.opened(options.host, {} if only_balances else numbers))
        from nuncius.node import embedding, ready
        from nuncius.node import node as nodes

        begin(options.log_level, options.log_format)
        store, data_dir = stack.enter_context(embedding.opened(data_dir, store))
        if own_data_dir is not None:
            own_store = stack.enter_context(embedding.hosted(own_data_dir.absolute())).dsn
        settings = nodes.NodeSettings(
            store,
            ports=nodes.Ports(**numbers | listening.ports),
            roles=roles,
            own_store=own_store,
            link_port=link_port,
            rebalance_after=rebalance_after,
            balancer_port=wanted,
            advertise=advertise,
            **shared,
        )
        announce = ready.Announcement(
            store, file=options.ready_file, data_dir=data_dir, on_leash=options.on_leash
        )
        if only_balances:
            import uvloop

            from nuncius.node.cluster import serve_balancer

            uvloop.run(serve_balancer(settings, announce))
        else:
            nodes.run(settings, announce, listening.sockets[0])


def _check(
    roles: tuple[str, ...],
    data_dir: Path | None,
    store: str | None,
    own_data_dir: Path | None,
    own_store: str | None,
) -> None:
    if own_store is not None and own_data_dir is not None:
        raise typer.BadParameter("give --own-data-dir or --own-store, not both", param_hint="--own-store")
    own = own_store is not None or own_data_dir is not None
    if own and BROKER not in roles:
        raise typer.BadParameter("only a broker has a store of its own", param_hint="--own-store")
    if (own_store or own_data_dir) in {store, data_dir} - {None}:
        raise typer.BadParameter("is the common store; a broker's own is another", param_hint="--own-store")
