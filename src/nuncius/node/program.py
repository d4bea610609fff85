"""How this program is called: by itself, and by people who read what to type."""

import os
import sys

SCRIPT = "NUNCIUS_SCRIPT"  # set by the script of a checkout, which installs what a command needs


def command(*arguments: str) -> list[str]:
    """For a process of its own."""
    script = os.environ.get(SCRIPT)
    return [*([script] if script else [sys.executable, "-m", "nuncius"]), *arguments]


def typed(text: str) -> str:
    """Commands as one types them here: a checkout has its script, and no `nuncius` on the path."""
    return text.replace("nuncius ", "./nuncius ") if os.environ.get(SCRIPT) else text
