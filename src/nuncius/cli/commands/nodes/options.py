"""Options that all commands which start a process share."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from nuncius.cli.option_groups import OptionGroup
from nuncius.cluster.dialects import QueueDialect


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
HowMuchToLog = Annotated[LogLevel, typer.Option(help="How much to log.")]
HowToLog = Annotated[LogFormat, typer.Option(help="How to log.")]


TrustedProxy = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ADDRESS",
        help="A reverse proxy, or a network of them, that may say for whom it asks. Repeatable.",
    ),
]


@dataclass(frozen=True)
class NodeOptions(OptionGroup):
    """Options of the commands that start a node with several listeners."""

    ready_file: Annotated[
        Path | None, typer.Option(help="Written when all doors are open: process, store and ports as JSON.")
    ] = None
    host: Host = "127.0.0.1"
    max_body: Annotated[int, typer.Option(min=1, max=24 << 20, help="Bytes of a message, at most.")] = 8 << 20
    max_batch: Annotated[int, typer.Option(min=1, help="Messages of a request, at most.")] = 10_000
    max_memory: Annotated[
        int,
        typer.Option(
            min=16,
            metavar="MB",
            help="Memory of the node, over all workers, for requests that are not answered and answers that "
            "clients have not read. Beyond that the slowest connections are disconnected.",
        ),
    ] = 512
    greeting_seconds: Annotated[
        float, typer.Option(min=0.1, help="How long a new connection may take to its first complete request.")
    ] = 10.0
    progress_seconds: Annotated[
        float,
        typer.Option(min=0.1, help="How long a connection may send nothing in the middle of a request."),
    ] = 60.0
    partition_threshold: Annotated[
        int,
        typer.Option(
            min=0, help="Messages per partition above which a topic gets another partition (HTTP). 0: never."
        ),
    ] = 1_000_000
    inactive_after: Annotated[
        float,
        typer.Option(min=1, help="Seconds of silence that make producers, consumers and brokers inactive."),
    ] = 300.0
    queue_dialect: Annotated[
        QueueDialect,
        typer.Option(
            help="How the partitioned queue's API (HTTP) answers. a1: the message as it is; a2: in the "
            "sentences of the report's programs; auto: a2 to requests that say topic_name, else a1."
        ),
    ] = QueueDialect.AUTO
    store_timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Seconds of silence after which connections to the store are broken off, "
            "and it is looked for again.",
        ),
    ] = 10.0
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="A site whose pages may use HTTP and WebSockets, like https://example.org. Repeatable.",
        ),
    ] = None
    log_level: HowMuchToLog = LogLevel.WARNING
    log_format: HowToLog = LogFormat.TEXT
    on_leash: Annotated[
        bool, typer.Option(hidden=True, help="Say on stdout when ready; stop when stdin ends.")
    ] = False

    def settings(self) -> dict[str, Any]:
        """Return these options as settings of a node."""
        same = {name: getattr(self, name) for name in SETTINGS}
        return same | {"allowed_origins": origins(self.allow_origin or ())}


SETTINGS = (
    *("host", "max_body", "max_batch", "max_memory", "greeting_seconds", "progress_seconds", "on_leash"),
    *("partition_threshold", "inactive_after", "queue_dialect", "store_timeout"),
)
NODE_OPTIONS = NodeOptions()


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


def ports(**given: str) -> dict[str, int | None]:
    """Parse the port of each listener, from its option."""
    return {name: port(f"--{name}-port", text) for name, text in given.items()}


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
