"""`nuncius bench`: measure, on this machine, now."""

import importlib
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


SECONDS = {Name.TELESTO: 20.0, Name.ZEROMQ: 9.0, Name.HTTP: 9.0}  # for each figure; 3 for the others


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
    module = importlib.import_module(f"nuncius.bench.{name.value}")
    seconds = seconds or SECONDS.get(name, 3.0)
    if name is Name.TELESTO:
        result = module.bench(console, seconds, clients, sweep, trace)
    elif name is Name.SPARK:
        result = module.bench(console)
    else:
        result = module.bench(console, seconds)
    result.show(Console())
    if json is not None:
        result.write(json)
