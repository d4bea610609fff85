"""Options that the commands which start something share."""

import sys
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer


class LogLevel(StrEnum):
    """How much to log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How to log."""

    TEXT = "text"
    JSON = "json"


Host = Annotated[str, typer.Option(help="The address to listen on.")]
ReadyFile = Annotated[
    Path | None, typer.Option(help="Written when all doors are open: process, store and ports as JSON.")
]
MaxBody = Annotated[int, typer.Option(min=1, max=24 << 20, help="Bytes of a message, at most.")]
MaxBatch = Annotated[int, typer.Option(min=1, help="Messages of a request, at most.")]
PartitionThreshold = Annotated[
    int,
    typer.Option(
        min=0, help="Messages per partition above which a topic gets another partition (HTTP). 0: never."
    ),
]
InactiveAfter = Annotated[
    float,
    typer.Option(min=1, help="Seconds of silence that make producers, consumers and brokers inactive."),
]
MaxMemory = Annotated[
    int,
    typer.Option(
        min=16,
        metavar="MB",
        help="Memory of the node, over all workers, for requests that are not answered and answers that "
        "clients have not read. Beyond that the slowest connections are disconnected.",
    ),
]
GreetingSeconds = Annotated[
    float,
    typer.Option(
        min=0.1,
        help="How long a new connection may take to its first complete request.",
    ),
]
ProgressSeconds = Annotated[
    float,
    typer.Option(
        min=0.1,
        help="How long a connection may send nothing in the middle of a request.",
    ),
]
HowMuchToLog = Annotated[LogLevel, typer.Option(help="How much to log.")]
HowToLog = Annotated[LogFormat, typer.Option(help="How to log.")]
OnLeash = Annotated[bool, typer.Option(hidden=True, help="Say on stdout when ready; stop when stdin ends.")]


def port(option: str, text: str) -> int | None:
    """A port number, 0 for any free one, None for `off`."""
    if text == "off":
        return None
    if text.isdecimal() and int(text) < 65536:
        return int(text)
    raise typer.BadParameter(f"{text!r} is neither a port nor 'off'", param_hint=option)


def one_store(data_dir: Path | None, store: str | None) -> None:
    """The store is in a directory or at an address."""
    if store is not None and data_dir is not None:
        raise typer.BadParameter("give --data-dir or --store, not both", param_hint="--store")


def leave(number: int, frame: FrameType | None) -> None:
    """SIGTERM before the node runs: what was begun is undone on the way out."""
    del frame
    sys.exit(128 + number)
