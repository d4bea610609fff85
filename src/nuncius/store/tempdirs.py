"""Temporary directories that are removed when their owner has died, even by `kill -9`.

Each contains a file that its owner keeps open and locked. Processes that inherit the open file own the
directory, too: the kernel releases the lock when the last of them ends. The next start removes directories
whose file is not locked. A directory without such a file is never removed: its owner may be about to make it.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nuncius.store.server import account

PREFIX = "nuncius-"
LOCK = "owner.lock"


@dataclass(frozen=True, slots=True)
class Owned:
    """A directory of this process."""

    path: Path
    lock: int
    """The open lock file. Other processes that use the directory inherit it."""

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def make(prefix: str = PREFIX, parent: str | None = None) -> Owned:
    """Make a directory that only this account can read."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with suppress(FileNotFoundError):  # removed as ownerless between these two lines
            return Owned(path, claim(path))


def claim(path: Path) -> int:
    """Own a directory while the returned descriptor is open. Raise FileNotFoundError if it was removed."""
    while True:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.path.samestat(os.fstat(lock), (path / LOCK).lstat()):
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def sweep() -> None:
    """Remove the directories of this account whose owners have died."""
    accounts = account.ours()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    for parent in {tempfile.gettempdir(), "/tmp", *([runtime] if runtime else [])}:  # noqa: S108 - only looked through
        with suppress(OSError):
            _sweep(parent, accounts)


def _sweep(parent: str, accounts: set[int]) -> None:
    """Search a directory to which other accounts may write: by descriptors, following no links."""
    opened = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in _names(opened):
            # An entry that cannot be removed has an owner, is no directory, or has just been removed.
            if name.startswith(PREFIX):
                with suppress(OSError):
                    _remove_if_ownerless(name, opened, accounts)
    finally:
        os.close(opened)


def _remove_if_ownerless(name: str, parent: int, accounts: set[int]) -> None:
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | flags, dir_fd=parent)
    try:
        if os.fstat(directory).st_uid not in accounts:
            return
        lock = os.open(LOCK, os.O_RDWR | flags, dir_fd=directory)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), os.stat(LOCK, dir_fd=directory, follow_symlinks=False)):
                _empty(directory)
        finally:
            os.close(lock)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)


def _empty(directory: int) -> None:
    """Remove the lock last: until then a process that claims the directory waits for it to be gone."""
    for name in sorted(_names(directory), key=lambda name: name == LOCK):
        if stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=directory)
        else:
            os.unlink(name, dir_fd=directory)


def _names(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]
