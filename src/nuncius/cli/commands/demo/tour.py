"""`nuncius tour`: the demonstration with explanations, at the reader's own pace."""

import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from nuncius.cli.commands.demo.demo import look_around, say
from nuncius.node.program import typed

WIDTH = 88
WELCOME = (
    "Nuncius is a message broker on PostgreSQL: queues, topics, requests and timelines, reached through "
    "five protocols and SQL. This tour starts a node with a store of its own, shows one idea after the "
    "other on it, and leaves nothing behind."
)
FAREWELL = (
    "That was the tour. `nuncius up` starts a node to keep, `nuncius demo` one with a life of its own for "
    "the console; docs/tour.md has the same steps to read, and docs/README.md says where everything is."
)


def register(app: typer.Typer) -> None:
    app.command()(tour)


def tour(
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not wait for Enter between the steps.")
    ] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where the store of the tour is; else in a new directory that goes again."),
    ] = None,
) -> None:
    """Explain the broker step by step, on a node of its own."""
    from nuncius.cli.commands.demo.story import STEPS
    from nuncius.cli.commands.demo.world import world

    say("\n".join(textwrap.wrap(WELCOME, WIDTH)))
    pause(yes)
    with world(data_dir) as scene:
        say(f"\nWhat you are told to try reaches this node from another terminal after\n    {scene.exports}")
        for number, step in enumerate(STEPS, 1):
            say(f"\nStep {number} of {len(STEPS)}: {step.title}\n")
            say("\n".join(textwrap.wrap(step.why, WIDTH)))
            say("")
            for line in step.act(scene):
                say(f"    {line}")
            say(f"\n    try it: {typed(step.try_it)}")
            pause(yes)
        look_around(scene)
        pause(yes)
    say("")
    say("\n".join(textwrap.wrap(typed(FAREWELL), WIDTH)))


def pause(yes: bool) -> None:
    """Wait for Enter, if stdin is a terminal and --yes was not given."""
    if not yes and sys.stdin.isatty():
        typer.prompt("\nEnter goes on", default="", show_default=False, prompt_suffix=" ")
