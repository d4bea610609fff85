"""What a user reads when a command fails: one line, and an exit code that scripts can tell apart.

0 done, 1 failed, 2 wrong use, 3 nothing there or not in time, 4 no connection, 130 interrupted.
"""

import sys

from nuncius.cli.logs import escape
from nuncius.store import environment

FAILED = 1
USAGE = 2
NOTHING = 3
NO_CONNECTION = 4
INTERRUPTED = 130


def explain(error: BaseException) -> str:
    """The error as one line for a person."""
    text = " ".join(str(error).split()) or type(error).__name__
    if not _is_expected(error):
        text = f"internal error: {type(error).__name__}: {text} (NUNCIUS_DEBUG=1 shows more)"
    return escape(text)


def exit_code(error: BaseException) -> int:
    from nuncius.client import errors as client
    from nuncius.pipeline.errors import InvalidOption

    if isinstance(error, client.Timeout):
        return NOTHING
    if isinstance(error, client.CannotConnect):
        return NO_CONNECTION
    if isinstance(error, client.InvalidInput | InvalidOption):
        return USAGE
    return FAILED


def report(error: BaseException) -> int:
    """Says on stderr what went wrong, and answers with the exit code."""
    if environment.debugging():
        import traceback

        traceback.print_exception(error)
    else:
        sys.stderr.write(f"nuncius: {explain(error)}\n")
    return exit_code(error)


def complain(text: str) -> None:
    """Say something on stderr in a command that goes on."""
    sys.stderr.write(f"nuncius: {escape(text)}\n")


def _is_expected(error: BaseException) -> bool:
    """Whether the error is one of those whose message was written for the user."""
    import asyncpg

    from nuncius.cli.node import NodeError
    from nuncius.client.errors import NunciusError
    from nuncius.doors.telesto.trace import TraceUnavailable
    from nuncius.pipeline.errors import PipelineError
    from nuncius.store.errors import StoreError

    expected = (
        NodeError,
        NunciusError,
        PipelineError,
        StoreError,
        TraceUnavailable,
        OSError,
        TimeoutError,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
    )
    return isinstance(error, expected)
