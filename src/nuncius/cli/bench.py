"""`nuncius bench`: measure, on this machine, now."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def register(app: typer.Typer) -> None:
    app.command()(bench)


def bench(
    name: Annotated[str, typer.Argument(help="Which benchmark: core.")],
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    seconds: Annotated[float, typer.Option(help="How long to measure each figure.", min=0.2)] = 3.0,
) -> None:
    """Measure speed and memory, and compare with what PostgreSQL alone can do in the same run."""
    if name != "core":
        raise typer.BadParameter(f"there is no benchmark {name!r}; there is: core", param_hint="NAME")
    from nuncius.bench import core

    console = Console(stderr=True)
    result = core.bench(console, seconds)
    result.show(Console())
    if json is not None:
        result.write(json)
