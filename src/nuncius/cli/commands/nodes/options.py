"""Options that all commands which start a process share."""

import signal
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from nuncius.cluster.dialects import Dialect


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
QueueDialect = Annotated[
    Dialect,
    typer.Option(
        help="How the partitioned queue's API (HTTP) answers. a1: the message as it is; a2: in the sentences "
        "of the report's programs; auto: a2 to requests that say topic_name, else a1."
    ),
]
AllowOrigin = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ORIGIN",
        help="A site whose pages may use HTTP and WebSockets, like https://example.org. Repeatable.",
    ),
]
StoreTimeout = Annotated[
    float,
    typer.Option(
        min=0.1,
        help="Seconds of silence after which connections to the store are broken off, "
        "and it is looked for again.",
    ),
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


TrustedProxy = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ADDRESS",
        help="A reverse proxy, or a network of them, that may say for whom it asks. Repeatable.",
    ),
]


def addresses(proxies: list[str] | None) -> tuple[str, ...]:
    """Check the addresses of proxies."""
    from nuncius.cluster.proxies import Proxies

    try:
        Proxies(proxies or ())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--trusted-proxy") from error
    return tuple(proxies or ())


def port(option: str, text: str) -> int | None:
    """Parse a port number: 0 means any free port, `off` becomes None."""
    if text == "off":
        return None
    if text.isdecimal() and int(text) < 65536:
        return int(text)
    raise typer.BadParameter(f"{text!r} is neither a port nor 'off'", param_hint=option)


def origins(given: Sequence[str]) -> tuple[str, ...]:
    """Return the origins after a check of each."""
    if not given:
        return ()
    from nuncius.doors.http.web.origins import is_origin

    for origin in given:
        if not is_origin(origin):
            raise typer.BadParameter(
                f"{origin} is none: write it like https://example.org", param_hint="--allow-origin"
            )
    return tuple(given)


def remove_stale(ready_file: Path | None) -> None:
    """Remove the ready file of a killed node, so that it is not mistaken for the new one."""
    try:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
    except OSError as error:
        from nuncius.node.node import NodeError

        raise NodeError(f"cannot remove {ready_file} ({error.strerror})") from error


def begin(log_level: str, log_format: str) -> None:
    """Prepare a process that becomes a node: configure its log, handle SIGTERM, sweep temporary files."""
    from nuncius.node import logs
    from nuncius.store import tempdirs

    logs.configure(log_level, log_format)
    signal.signal(signal.SIGTERM, leave)
    tempdirs.sweep()


def leave(number: int, frame: FrameType | None) -> None:
    """Exit on a SIGTERM that comes before the node runs, and undo what was begun."""
    del frame
    sys.exit(128 + number)
