"""The command line: every command is a module of this package that registers itself."""

import importlib
from typing import Annotated

import typer

from nuncius.cli.option_groups import Commands

# The module of each command, under `nuncius.cli.commands`, in the order of the help.
COMMANDS = {
    "up": "nodes.up",
    "node": "nodes.node_command",
    "status": "status",
    "top": "top",
    "doctor": "doctor.doctor",
    "demo": "demo.demo",
    "tour": "demo.tour",
    "console": "console",
    "migrate": "migrate",
    "queue": "queues",
    "topic": "topics",
    "messages": "messages.messages",
    "pubsub": "programs.pubsub",
    "pipeline": "pipeline.pipeline",
    "cluster": "nodes.cluster",
    "tribbler": "nodes.tribbler",
    "stomp-client": "programs.stomp_client",
    "trib": "programs.trib",
    "kv": "programs.kv",
    "bench": "bench",
}


def build(first: str = "") -> typer.Typer:
    """Build the application with all commands or, for speed, with only the command named `first`."""
    app = Commands(
        name="nuncius",
        help="Nuncius, a message broker on PostgreSQL.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for module in [COMMANDS[first]] if first in COMMANDS else COMMANDS.values():
        importlib.import_module(f"nuncius.cli.commands.{module}").register(app)
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
