"""The bodies of messages: from arguments, files or standard input, with one message for each source or line.

A thread reads the input in pieces as they arrive, so that a slow source does not delay the broker's answers.
It reads only a few pieces ahead of their use, so memory is bounded for input of any length.
"""

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from nuncius.client import InvalidInput

PIECE = 256 << 10
PIECES_AHEAD = 2
GROUP = 1000  # messages that are sent together
MAX_BODY = 32 << 20  # no broker accepts a longer message, so reading stops here

Bodies = Annotated[
    list[str] | None, typer.Argument(help="Bodies, a message each. Without any: standard input.")
]
Files = Annotated[
    list[Path] | None,
    typer.Option("--file", "-f", exists=True, dir_okay=False, help="A message a file."),
]
Lines = Annotated[
    bool, typer.Option("--lines", "-l", help="A message a line of the files or standard input.")
]
Headers = Annotated[list[str] | None, typer.Option("--header", "-H", help="A header for all, as NAME=VALUE.")]


def parse_headers(pairs: Sequence[str] | None) -> dict[str, str] | None:
    headers = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"a header is NAME=VALUE, not {pair!r}", param_hint="--header")
        headers[name] = value
    return headers or None


def check_sources(bodies: Sequence[str] | None, *, lines: bool) -> None:
    if bodies and lines:
        raise typer.BadParameter(
            "lines are read from files or standard input, not from arguments", param_hint="--lines"
        )


async def groups(
    bodies: Sequence[str] | None, files: Sequence[Path] | None, *, lines: bool
) -> AsyncIterator[list[bytes]]:
    """Yield bodies in the order given, in groups for batches."""
    arguments = [os.fsencode(body) for body in bodies or ()]
    for start in range(0, len(arguments), GROUP):
        yield arguments[start : start + GROUP]
    for path in files or ():
        with path.open("rb", buffering=0) as file:
            async for group in _read(file, lines=lines):
                yield group
    if not bodies and not files:
        async for group in _read(sys.stdin.buffer, lines=lines):
            yield group


async def _read(file: BinaryIO, *, lines: bool) -> AsyncIterator[list[bytes]]:
    rest = bytearray()
    async for piece in _pieces(file):
        rest += piece
        if len(rest) > MAX_BODY:
            what = "line" if lines else "message"
            raise InvalidInput(f"a {what} of the input is longer than {MAX_BODY} bytes")
        if lines and b"\n" in piece:
            *complete, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            for start in range(0, len(complete), GROUP):
                yield complete[start : start + GROUP]
    if rest or not lines:
        yield [bytes(rest)]


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(PIECES_AHEAD)
    read = _reader(file)

    def pump() -> None:
        piece: bytes | OSError = b"?"
        while piece and not isinstance(piece, OSError):
            room.acquire()
            try:
                piece = read(PIECE)
            except OSError as error:
                piece = error
            try:
                loop.call_soon_threadsafe(arrived.put_nowait, piece)
            except RuntimeError:
                return  # the command is over

    # A daemon, because a thread that reads from a terminal cannot be interrupted.
    threading.Thread(target=pump, daemon=True).start()
    while piece := await arrived.get():
        if isinstance(piece, OSError):
            raise InvalidInput(f"the input cannot be read: {piece}")
        yield piece
        room.release()


def _reader(file: BinaryIO) -> Callable[[int], bytes]:
    """Return a function that reads the available bytes without waiting for a full buffer."""
    try:
        number = file.fileno()
    except io.UnsupportedOperation:
        return file.read
    return lambda count: os.read(number, count)
