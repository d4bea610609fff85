"""The command line: every command is a module of this package that registers itself."""

import importlib
from typing import Annotated

import typer

# In the order of the help. A module that is named like its command has no other.
COMMANDS = (
    "up",
    "node_command",
    "status",
    "top",
    "doctor",
    "demo",
    "tour",
    "console",
    "migrate",
    "queues",
    "topics",
    "messages",
    "pubsub",
    "pipeline",
    "cluster",
    "tribbler",
    "stomp_client",
    "trib",
    "kv",
    "bench",
)

# Commands whose module has another name, because theirs is taken.
MODULES = {"node": "node_command"}


def build(first: str = "") -> typer.Typer:
    """The application with all its commands, or, for speed, with the one that the first word names."""
    app = typer.Typer(
        name="nuncius",
        help="Nuncius, a message broker on PostgreSQL.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    first = MODULES.get(first, first)
    for name in (first,) if first in COMMANDS else COMMANDS:
        importlib.import_module(f"nuncius.cli.{name}").register(app)
    return app


def _show_version(asked: bool) -> None:
    if asked:
        from nuncius import __version__

        typer.echo(f"nuncius {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    del version
