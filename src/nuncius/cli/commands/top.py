"""`nuncius top`: the current activity of a node, on one screen that refreshes itself."""

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from nuncius.cli import http, output
from nuncius.cli.connection import Output
from nuncius.cli.http import DEFAULT_HTTP, HttpUrl, NoHttpAnswer
from nuncius.cli.output import Format

Every = Annotated[float, typer.Option(min=0.2, max=60, help="Seconds between two looks.")]
Once = Annotated[bool, typer.Option("--once", help="Show one screen and end.")]


def register(app: typer.Typer) -> None:
    app.command()(top)


def top(
    url: HttpUrl = DEFAULT_HTTP, every: Every = 2.0, once: Once = False, form: Output = Format.TABLE
) -> None:
    """Show rates, connections, latencies, deep queues, lags and alarms of a node. q or Ctrl-C ends it."""
    seen = look(url, every)
    if form is Format.JSON:
        output.write_document(seen)
    elif once or not sys.stdout.isatty():
        _print(seen, url)
    else:
        with contextlib.suppress(KeyboardInterrupt), _keys():
            _live(seen, url, every)


def look(url: str, seconds: float) -> dict[str, Any]:
    """Return the statistics of the node and its store. Rates cover the last few seconds."""
    stats = http.get(url, f"/v1/stats?seconds={max(seconds, 5.0):g}")
    return {"stats": stats, "overview": http.get(url, "/v1/overview")}


def _print(seen: dict[str, Any], url: str) -> None:
    from rich.console import Console

    from nuncius.cli.commands.top_screen import screen

    Console(width=None if sys.stdout.isatty() else 100, highlight=False).print(screen(seen, url))


def _live(seen: dict[str, Any], url: str, every: float) -> None:
    from rich.console import Console
    from rich.live import Live

    from nuncius.cli.commands.top_screen import lost, screen

    with Live(screen(seen, url), console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        while not _has_enough(every):
            try:
                seen = look(url, every)
            except NoHttpAnswer as error:
                live.update(lost(str(error)), refresh=True)
            else:
                live.update(screen(seen, url), refresh=True)


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Deliver keys as soon as they are pressed, if stdin is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _has_enough(seconds: float) -> bool:
    """Wait so many seconds. Return True if the user pressed q."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    until = time.monotonic() + seconds
    while select.select([sys.stdin], [], [], max(0.0, until - time.monotonic()))[0]:
        if os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b""):
            return True
    return False
