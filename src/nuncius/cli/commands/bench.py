"""`nuncius bench`: measure, on this machine, now."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Name(StrEnum):
    CORE = "core"
    TELESTO = "telesto"
    ZEROMQ = "zeromq"
    STOMP = "stomp"
    HTTP = "http"
    TRIBBLER = "tribbler"
    CONSOLE = "console"
    SPARK = "spark"


class Sweep(StrEnum):
    CLIENTS = "clients"
    WORKERS = "workers"
    NODES = "nodes"


def register(app: typer.Typer) -> None:
    app.command()(bench)


def bench(
    name: Annotated[Name, typer.Argument(help="Which benchmark.")],
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="How long to measure each figure (core: 3, telesto: 20).", min=0.2)
    ] = None,
    clients: Annotated[int, typer.Option(help="telesto: how many clients.", min=2)] = 90,
    sweep: Annotated[Sweep | None, typer.Option(help="telesto: a series over the number of these.")] = None,
    trace: Annotated[Path | None, typer.Option(help="telesto: keep the trace files here.")] = None,
) -> None:
    """Measure speed and memory, and compare with what PostgreSQL alone can do in the same run."""
    from rich.console import Console

    console = Console(stderr=True)
    if name is Name.CORE:
        from nuncius.bench import core

        result = core.bench(console, seconds or 3.0)
    elif name is Name.TELESTO:
        from nuncius.bench import telesto

        result = telesto.bench(console, seconds or 20.0, clients, sweep, trace)
    elif name is Name.ZEROMQ:
        from nuncius.bench import zeromq

        result = zeromq.bench(console, seconds or 9.0)
    elif name is Name.HTTP:
        from nuncius.bench import http

        result = http.bench(console, seconds or 9.0)
    elif name is Name.STOMP:
        from nuncius.bench import stomp

        result = stomp.bench(console, seconds or 3.0)
    elif name is Name.TRIBBLER:
        from nuncius.bench import tribbler

        result = tribbler.bench(console, seconds or 3.0)
    elif name is Name.CONSOLE:
        from nuncius.bench import console as of_console

        result = of_console.bench(console, seconds or 3.0)
    else:
        from nuncius.bench import spark

        result = spark.bench(console)
    result.show(Console())
    if json is not None:
        result.write(json)
