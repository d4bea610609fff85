"""Programs that run once for every message, with its body as their input."""

import asyncio
import shutil
from collections.abc import Sequence

import typer

from nuncius.client import InvalidInput


def command_line(command: Sequence[str] | None) -> list[str]:
    """Return the program and its arguments, without a leading `--`. Fail if there is no such program, before
    a message is consumed for it."""
    words = list(command or ())
    words = words[1:] if words[:1] == ["--"] else words
    if words and shutil.which(words[0]) is None:
        raise missing_command(f"there is no program {words[0]!r}")
    return words


def missing_command(advice: str) -> typer.BadParameter:
    return typer.BadParameter(advice, param_hint="COMMAND")


async def run_program(program: Sequence[str], body: bytes, *, keep_output: bool) -> tuple[int, bytes]:
    """Run the program. Return its exit status and, with `keep_output`, its output; otherwise it writes to our
    stdout. If we are stopped meanwhile, the program is stopped, too."""
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
