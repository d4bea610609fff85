"""The failure of a command: one line for the user, and an exit code for scripts.

0 done, 1 failed, 2 wrong use, 3 nothing there or not in time, 4 no connection, 130 interrupted.
"""

import sys

from nuncius.node import explaining
from nuncius.node.logs import escape
from nuncius.store import environment

FAILED = 1
USAGE = 2
NOTHING = 3
NO_CONNECTION = 4
INTERRUPTED = 130


def explain(error: BaseException) -> str:
    """Return the error as one line for the user."""
    from nuncius.client.errors import NunciusError
    from nuncius.pipeline.errors import PipelineError

    return explaining.explain(error, (NunciusError, PipelineError))


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
    """Report the error on stderr. Return the exit code."""
    if environment.debugging():
        import traceback

        traceback.print_exception(error)
    else:
        sys.stderr.write(f"nuncius: {explain(error)}\n")
    return exit_code(error)


def complain(text: str) -> None:
    """Print a warning on stderr, in a command that goes on."""
    sys.stderr.write(f"nuncius: {escape(text)}\n")
