"""The environment variables that programs of Nuncius read.

An option takes precedence over its variable, a variable over the default; an empty variable counts as not
set. For the store, its address takes precedence over its data directory.
"""

import os
from pathlib import Path

from nuncius.store.errors import DataDirectoryError

STORE = "NUNCIUS_STORE"
DATA_DIR = "NUNCIUS_DATA_DIR"
URL = "NUNCIUS_URL"
HTTP = "NUNCIUS_HTTP"
ZEROMQ = "NUNCIUS_ZEROMQ_URL"
TRIBBLER = "NUNCIUS_TRIBBLER_NODE"
SPARK_MASTER = "NUNCIUS_SPARK_MASTER"
DEBUG = "NUNCIUS_DEBUG"

NAMES = (STORE, DATA_DIR, URL, HTTP, ZEROMQ, TRIBBLER, SPARK_MASTER, DEBUG)


def value(name: str) -> str | None:
    """Return the value of a variable; None if it is not set, or empty."""
    return os.environ.get(name) or None


def debugging() -> bool:
    """Return True if failures are shown with all their details."""
    return value(DEBUG) not in {None, "0"}


def default_data_dir() -> Path:
    """Return the data directory of the embedded server, unless an option names another."""
    if chosen := value(DATA_DIR):
        return Path(chosen)
    home = os.environ.get("XDG_DATA_HOME")
    try:
        return (Path(home) if home else Path.home() / ".local" / "share") / "nuncius"
    except RuntimeError as error:
        raise DataDirectoryError(
            f"user {os.geteuid()} has no home directory: say with --data-dir where the data is to be"
        ) from error
