"""Programs that are run for every message: the body is their input."""

import asyncio
import shutil
from collections.abc import Sequence

import typer

from nuncius.client import InvalidInput


def command_line(command: Sequence[str] | None) -> list[str]:
    """The program and its arguments, with or without the `--` that may stand before it. One that is not there
    is found out before it costs a message."""
    words = list(command or ())
    words = words[1:] if words[:1] == ["--"] else words
    if words and shutil.which(words[0]) is None:
        raise missing_command(f"there is no program {words[0]!r}")
    return words


def missing_command(advice: str) -> typer.BadParameter:
    return typer.BadParameter(advice, param_hint="COMMAND")


async def run_program(program: Sequence[str], body: bytes, *, keep_output: bool) -> tuple[int, bytes]:
    """How it ended, and what it wrote if that is kept; else it writes where we do. Should we be stopped
    meanwhile, so is the program."""
    try:
        process = await asyncio.create_subprocess_exec(
            *program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE if keep_output else None,
        )
    except OSError as error:
        raise InvalidInput(f"the command cannot be run: {error}") from None
    try:
        written, _ = await process.communicate(body)
    except asyncio.CancelledError:
        if process.returncode is None:
            process.terminate()
            await process.wait()
        raise
    return process.returncode or 0, written or b""


def ended_badly(program: Sequence[str], status: int) -> str:
    return f"{program[0]} ended with status {status}"
