"""Begin a process that becomes a node, and clean up behind an earlier one."""

import signal
import sys
from pathlib import Path
from types import FrameType


def remove_stale(ready_file: Path | None) -> None:
    """Remove the ready file of a killed node, so that it is not mistaken for the new one."""
    try:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
    except OSError as error:
        from nuncius.node.node import NodeError

        raise NodeError(f"cannot remove {ready_file} ({error.strerror})") from error


def begin(log_level: str, log_format: str) -> None:
    """Prepare a process that becomes a node: configure its log, handle SIGTERM, sweep temporary files."""
    from nuncius.node import logs
    from nuncius.store import tempdirs

    logs.configure(log_level, log_format)
    signal.signal(signal.SIGTERM, leave)
    tempdirs.sweep()


def leave(number: int, frame: FrameType | None) -> None:
    """Exit on a SIGTERM that comes before the node runs, and undo what was begun."""
    del frame
    sys.exit(128 + number)
