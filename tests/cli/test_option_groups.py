"""A class of options is one parameter of a command, and its fields are the options."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from nuncius.cli.option_groups import Commands, OptionGroup


@dataclass(frozen=True)
class Size(OptionGroup):
    width: Annotated[int, typer.Option("--width", "-w", min=1, help="How wide.")] = 2
    height: Annotated[int, typer.Option(help="How high.")] = 3


SIZE = Size()


def area(name: str, size: Size = SIZE, unit: str = "m") -> None:
    """Print an area."""
    typer.echo(f"{name}: {size.width * size.height} {unit}")


def run(*arguments: str) -> str:
    app = Commands()
    app.command()(area)
    result = CliRunner().invoke(app, list(arguments))
    return result.output


def test_the_fields_are_options() -> None:
    """Defaults, short names and checks are those of the fields."""
    assert run("box") == "box: 6 m\n"
    assert run("box", "-w", "5", "--height=4", "--unit=cm") == "box: 20 cm\n"
    assert "--width" in run("box", "--width=0")  # the error names the option


def test_the_help_lists_them_where_the_group_is() -> None:
    """The options of a group are between those around it."""
    shown = run("--help")
    assert "Print an area." in shown
    assert shown.index("--width") < shown.index("--height") < shown.index("--unit")
