"""Connections of commands to a node, their shared options, and their exit codes."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from nuncius.cli.errors import INTERRUPTED
from nuncius.cli.option_groups import OptionGroup
from nuncius.cli.output import Format, StreamFormat
from nuncius.client import AsyncClient, CannotConnect, NotFound, NunciusError
from nuncius.client.connection import address
from nuncius.client.connection.requester import Requester
from nuncius.store import environment
from nuncius.wire.packets import Hello

Url = Annotated[
    str, typer.Option("--url", envvar=environment.URL, help="Where the broker is.", show_default=True)
]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer of the broker.")
]
Output = Annotated[Format, typer.Option("--output", "-o", help="For people, or for programs.")]
StreamOutput = Annotated[
    StreamFormat,
    typer.Option("--output", "-o", help="A line a message, a JSON document a line, or bodies as they are."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show more than the body of a message.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

DEFAULT_URL = address.DEFAULT_URL
TIMEOUT = 30.0
PROBE_SECONDS = 2.0
STORE_AWAY = "the node at {} is up, but its store does not answer; look for the reason with: nuncius doctor"


@dataclass(frozen=True)
class BrokerOptions(OptionGroup):
    """The broker that a command connects to."""

    url: Url = DEFAULT_URL
    timeout: Timeout = TIMEOUT


BROKER = BrokerOptions()


def run(
    work: Callable[[AsyncClient], Coroutine[Any, Any, int | None]],
    at: BrokerOptions,
    *,
    name: str = "",
    publisher: str = "",
) -> None:
    """Do some work with a connected client, and end the command with the exit code that it returns."""
    try:
        code = asyncio.run(_connected(work, at, name, publisher))
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Keep Python's flush at exit from failing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    if code:
        raise typer.Exit(code)


async def _connected(
    work: Callable[[AsyncClient], Coroutine[Any, Any, int | None]],
    at: BrokerOptions,
    name: str,
    publisher: str,
) -> int | None:
    client = AsyncClient(at.url, name=name, publisher=publisher, timeout=at.timeout)
    try:
        await client.open()
    except CannotConnect as error:
        if await is_up(at.url):
            raise CannotConnect(STORE_AWAY.format(at.url)) from None
        raise CannotConnect(f"{error}; start a node with: nuncius up") from None
    try:
        return await work(client)
    finally:
        await client.close()


async def is_up(url: str) -> bool:
    """Return whether a node answers. It welcomes a client without a name even when its store is down."""
    caller = Requester(address.parse(url), lambda: Hello(0))
    try:
        await caller.connect(PROBE_SECONDS)
    except NunciusError:
        return False
    finally:
        await caller.close()
    return True


@contextmanager
def if_missing(advice: str) -> Iterator[None]:
    """Add advice to the message of a NotFound error."""
    try:
        yield
    except NotFound as error:
        raise NotFound(f"{error}; {advice}") from None


def make_sure(question: str, *, yes: bool) -> None:
    """Ask for confirmation before data is deleted. Without a terminal, --yes is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("confirmation needs a terminal; pass --yes", param_hint="--yes")
    typer.confirm(question, abort=True)
