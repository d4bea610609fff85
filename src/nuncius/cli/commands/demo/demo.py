"""`nuncius demo`: start everything, send a story through every door, and stay until stopped."""

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nuncius.cli import output
from nuncius.node import program as itself

if TYPE_CHECKING:
    from nuncius.cli.commands.demo.world import World


INSTALLING = "nuncius: installing "  # printed by the script, with the size of the download


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where the store of the demonstration is; else in a new directory that goes again."
        ),
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Whether to run a Spark job over what was sent.")
    ] = True,
    once: Annotated[bool, typer.Option("--once", help="End when the story is told.")] = False,
    fixed_ports: Annotated[
        bool, typer.Option("--fixed-ports", help="Use the usual ports instead of any free ones.")
    ] = False,
) -> None:
    """Start a node with all its doors, send a story through all of them, and leave it running for a look."""
    from nuncius.cli.commands.demo.life import live
    from nuncius.cli.commands.demo.story import STEPS
    from nuncius.cli.commands.demo.world import world

    say("Starting a node with an embedded PostgreSQL ...")
    with world(data_dir, fixed_ports=fixed_ports) as scene:
        say(f"It keeps its data in {scene.data_dir}")
        for number, step in enumerate(STEPS, 1):
            say(f"\n{number}. {step.title}")
            for line in step.act(scene):
                say(f"   {line}")
        if spark:
            run_job(scene, len(STEPS) + 1)
        look_around(scene)
        if not once:
            say("\nMessages keep coming. Ctrl-C ends the demonstration.")
            with contextlib.suppress(KeyboardInterrupt):
                live(scene)
    say("\nThe node has stopped.")


def say(text: str) -> None:
    for line in text.split("\n"):
        output.write(output.printable(line))
    sys.stdout.flush()


def run_job(world: "World", number: int) -> None:
    """Run the job in a separate process: Spark starts slowly, and may not be installed."""
    say(f"\n{number}. Spark digests the history (it takes a while to start, and longer the very first time)")
    command = itself.command("pipeline", "run", "archive", f"--data-dir={world.data_dir}")
    said = ""
    with tempfile.TemporaryFile("w+") as out:
        with subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True) as job:
            assert job.stderr is not None
            for line in job.stderr:
                said = line.strip() or said
                if said.startswith(INSTALLING):
                    say(f"   {said.removeprefix('nuncius: ')}")
        out.seek(0)
        result = out.read().strip().splitlines()
    if job.returncode == 0:
        say("   the job archive has written all topics to a Delta table:")
        for line in result:
            say(f"   {line}")
    else:
        words = said or (result or ["it did not say why"])[-1]
        say(f"   the job could not run here, and the demonstration goes on without it ({words})")


def look_around(world: "World") -> None:
    say("\nLook around:")
    say(f"   the console   {world.console_url}")
    say(f"   on a terminal {itself.typed('nuncius top')} --http {world.http_url}")
    say(f"   the API       {world.http_url}/docs")
    say(f"   metrics       {world.http_url}/metrics")
    for door in ("telesto", "stomp", "zeromq", "tribbler"):
        say(f"   {door:<13} 127.0.0.1:{world.ports[door]}")
    say(f"   SQL           {world.dsn}")
    say(f"\nCommands in another terminal find this node after\n   {world.exports}")
