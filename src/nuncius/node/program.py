"""Build command lines that start this program, for subprocesses and for messages."""

import os
import sys

SCRIPT = "NUNCIUS_SCRIPT"  # set by a checkout's script, which installs what a command needs


def command(*arguments: str) -> list[str]:
    """Return the command line for a subprocess."""
    script = os.environ.get(SCRIPT)
    return [*([script] if script else [sys.executable, "-m", "nuncius"]), *arguments]


def typed(text: str) -> str:
    """Return a command as users type it here: a checkout has a script, and no `nuncius` on the path."""
    return text.replace("nuncius ", "./nuncius ") if os.environ.get(SCRIPT) else text
