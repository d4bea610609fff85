"""`nuncius tribbler`: a node of a ring, started as the course starts its servers.

Every node has a store of its own, named after its port, in the data directory below the current directory.
Options may have a single dash, as in Go.
"""

import contextlib
import importlib
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from nuncius.cli.commands.nodes.options import LogFormat, LogLevel
from nuncius.cli.stores import one_store
from nuncius.node import listeners
from nuncius.node.starting import begin, remove_stale
from nuncius.store import environment

DIRECTORY = "nuncius-data"
MOST_IDS = 256


def register(app: typer.Typer) -> None:
    app.command()(tribbler)


def _number(text: str | int) -> int:
    """Parse a number, with or without the "=" that a short option keeps in `-N=2`."""
    number = str(text).removeprefix("=")
    try:
        return int(number)
    except ValueError:
        raise typer.BadParameter(f"{number!r} is not a number") from None


def _option(name: str, **settings: Any) -> Any:
    """Return an option that may have a single dash, as in Go."""
    return typer.Option(f"-{name}", f"--{name}", **settings)


def tribbler(
    port: Annotated[int, _option("port", min=0, max=65535, help="Where to listen.")] = 9009,
    count: Annotated[
        int,
        _option("N", parser=_number, metavar="NODES", help="This is the master of a ring of so many nodes."),
    ] = 0,
    master: Annotated[str, _option("master", metavar="HOST:PORT", help="Where the ring's master is.")] = "",
    node_id: Annotated[
        int, _option("id", min=0, max=2**32 - 1, help="The place on the ring. 0: a random one.")
    ] = 0,
    ids: Annotated[
        int, _option("ids", min=1, max=MOST_IDS, help="Places on the ring; more share keys better.")
    ] = 1,
    join: Annotated[bool, _option("join", help="Add this node to a ring that is running.")] = False,
    caching: Annotated[
        bool,
        typer.Option(
            "-cache/-no-cache", "--cache/--no-cache", help="Keep hot keys of other nodes in memory."
        ),
    ] = True,
    timelines_from: Annotated[
        int,
        _option(
            "timelines-from",
            min=1,
            help="Users who follow so many get the feed that the pipeline's job timelines has made.",
        ),
    ] = 200,
    host: Annotated[
        str, _option("host", help="The address to listen on, and to tell the other nodes.")
    ] = "localhost",
    data: Annotated[
        Path | None, _option("data", help=f"Where the node's data is. Default: {DIRECTORY}/tribbler-PORT.")
    ] = None,
    store: Annotated[
        str | None,
        _option(
            "store",
            metavar="DSN",
            help="The node's own store: this PostgreSQL, start none. Default: $NUNCIUS_STORE.",
        ),
    ] = None,
    max_memory: Annotated[
        int,
        _option(
            "max-memory",
            min=16,
            metavar="MB",
            help="Memory for requests that are not answered and answers that clients have not read.",
        ),
    ] = 512,
    greeting_seconds: Annotated[
        float,
        _option(
            "greeting-seconds",
            min=0.1,
            help="How long a new connection may take to its first complete request.",
        ),
    ] = 10.0,
    progress_seconds: Annotated[
        float,
        _option(
            "progress-seconds",
            min=0.1,
            help="How long a connection may send nothing in the middle of a request.",
        ),
    ] = 60.0,
    ready_file: Annotated[
        Path | None, _option("ready-file", help="Written when the port is open, as by `nuncius up`.")
    ] = None,
    log_level: Annotated[LogLevel, _option("log-level", help="How much to log.")] = LogLevel.WARNING,
    log_format: Annotated[LogFormat, _option("log-format", help="How to log.")] = LogFormat.TEXT,
    on_leash: Annotated[
        bool, _option("on-leash", hidden=True, help="Say on stdout when ready; stop when stdin ends.")
    ] = False,
) -> None:
    """Start a Tribbler server: a node of a ring of key-value stores. Without -master it is the master."""
    if count < 0:
        raise typer.BadParameter("a ring has at least one node", param_hint="-N")
    if master and not master.rpartition(":")[2].isdecimal():
        raise typer.BadParameter(f"{master!r} is no address: host:port", param_hint="-master")
    if join and not master:
        raise typer.BadParameter("needs the ring's -master", param_hint="-join")
    data, store = one_store(data, store, "-data")
    remove_stale(ready_file)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listeners.opened(host, {"tribbler": port}, option="-port"))
        from nuncius.node import embedding, node, ready
        from nuncius.ring.settings import RingSettings

        begin(log_level, log_format)
        port = listening.ports["tribbler"] or 0
        # The address of the master may be the master's own.
        elsewhere = "" if master in (f"{host}:{port}", f"localhost:{port}", f"127.0.0.1:{port}") else master
        ring = RingSettings(node_id, count or 1, elsewhere, ids, join, caching, timelines_from)
        # Import it while PostgreSQL starts.
        threading.Thread(target=importlib.import_module, args=("nuncius.doors.tribbler.door",)).start()
        store, data = stack.enter_context(embedding.opened(data or _data_dir(port), store))
        from nuncius.doors.tribbler.door import NotInRing

        doors = node.Ports(None, None, None, None, port)
        settings = node.NodeSettings(
            store,
            host,
            doors,
            ring=ring,
            max_memory=max_memory,
            greeting_seconds=greeting_seconds,
            progress_seconds=progress_seconds,
            on_leash=on_leash,
        )
        announce = ready.Announcement(store, file=ready_file, data_dir=data, on_leash=on_leash)
        try:
            node.run(settings, announce, listening.sockets[0])
        except NotInRing as error:
            raise node.NodeError(str(error)) from error


def _data_dir(port: int) -> Path:
    return Path(environment.value(environment.DATA_DIR) or DIRECTORY) / f"tribbler-{port}"
