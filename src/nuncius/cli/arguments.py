"""Command lines without passwords: every account of a machine can read the arguments of every process.

A process cannot change its own arguments. If they contain a password, it replaces itself (exec) with masked
arguments, and passes the real ones in its environment, which only its own account can read.
"""

import contextlib
import json
import os
import sys

from nuncius.store.address import shown

REAL = "NUNCIUS_ARGUMENTS"


def hide_passwords() -> None:
    """Restart with masked arguments if they contain a password."""
    real = os.environ.pop(REAL, None)
    if real is not None:
        sys.argv[1:] = json.loads(real)
        return
    masked = [shown(argument) for argument in sys.orig_argv]
    if masked != sys.orig_argv:
        os.environ[REAL] = json.dumps(sys.argv[1:])
        with contextlib.suppress(OSError):  # more arguments than fit into the environment
            os.execv(sys.executable, masked)  # noqa: S606 - the same program
        del os.environ[REAL]
