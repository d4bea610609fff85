"""The data directory: its ownership, its contents, and the lock for starting.

postgres/       the cluster, owned by the server's account and closed to all others
postgres.log    messages of the server while starting; later messages are in postgres/log/
nuncius.json    the marker that makes the directory ours, with the version of this layout
password        the password for TCP, once TCP was requested
.lock           held while a process starts or stops the server
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from nuncius.store.errors import DataDirectoryError
from nuncius.store.server.pgbinaries import MAJOR

PROGRAM = "nuncius"
FORMAT = 1
_NOT_CONTENT = {".lock", "lost+found"}  # a racing starter's lock; the root of a mounted disk


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """The paths inside one data directory, which may not exist yet."""

    path: Path

    @property
    def cluster(self) -> Path:
        """PostgreSQL's own directory."""
        return self.path / "postgres"

    @property
    def has_cluster(self) -> bool:
        """Return True if a cluster exists; False, too, if this process may not look."""
        return os.path.exists(self.cluster)  # noqa: PTH110 - Path.exists raises if this process may not look

    @property
    def unfinished_cluster(self) -> Path:
        """The directory in which a cluster is made before it is renamed: a killed initdb leaves only this."""
        return self.path / "postgres.new"

    @property
    def log(self) -> Path:
        """The log of the server while starting."""
        return self.path / "postgres.log"

    @property
    def password(self) -> Path:
        """The password for TCP."""
        return self.path / "password"

    @property
    def marker(self) -> Path:
        """The file that marks the directory as ours."""
        return self.path / "nuncius.json"

    @property
    def is_ours(self) -> bool:
        """Return True if the marker exists; False, too, if this process may not look."""
        try:
            return self.marker.exists()
        except PermissionError:
            return False

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """Make the directory ours, or refuse it. Keep other processes from starting meanwhile."""
        with _refusing(self.path):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._refuse_strangers()
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError("not writable")
        with self.locked():
            with _refusing(self.path):
                self._refuse_strangers()
                if not self.marker.exists():
                    write(self.marker, json.dumps({"program": PROGRAM, "format": FORMAT}) + "\n")
            self._refuse_other_formats()
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Admit one process at a time. The kernel releases the lock however the holder ends."""
        with _refusing(self.path):
            lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _refuse_strangers(self) -> None:
        if self.marker.exists():
            return
        names = {entry.name for entry in self.path.iterdir()} - _NOT_CONTENT
        # Not a draft of the marker: another starter is about to rename it, or was killed before it could.
        content = sorted(name for name in names if not name.startswith(_draft_of(self.marker)))
        if content and not self.marker.exists():  # else another starter has just made it ours
            raise DataDirectoryError(
                f"{self.path} is not empty and not a nuncius data directory (it contains "
                f"{content[0]}): choose an empty or new directory"
            )

    def _refuse_other_formats(self) -> None:
        try:
            marker = json.loads(self.marker.read_bytes())
            program, layout = marker["program"], int(marker["format"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataDirectoryError(
                f"{self.marker} cannot be read ({error}): restore it from a backup, or write "
                f'{{"program": "{PROGRAM}", "format": {FORMAT}}} into it'
            ) from error
        if program != PROGRAM:
            raise DataDirectoryError(
                f"{self.path} is the data directory of another program, {program}: "
                "choose an empty or new directory"
            )
        if layout > FORMAT:
            raise DataDirectoryError(
                f"{self.path} was written by a newer nuncius (format {layout}, this one knows "
                f"{FORMAT}): upgrade this program or choose another directory"
            )
        version_file = self.cluster / "PG_VERSION"
        with _refusing(self.path):
            major = version_file.read_text().strip() if version_file.exists() else str(MAJOR)
        if major != str(MAJOR):
            raise DataDirectoryError(
                f"{self.cluster} holds data of PostgreSQL {major}, this program runs {MAJOR}: "
                "dump it with the program that wrote it and restore it into a new directory"
            )


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    """Write a file atomically: a reader, or a crash, leaves the old or the new one, never half.

    The new file is created exclusively: a link planted under its name is never followed.
    """
    draft = path.with_name(f"{_draft_of(path)}{os.getpid()}")
    with suppress(FileNotFoundError):
        draft.unlink()
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    return draft.replace(path)


def _draft_of(path: Path) -> str:
    return f".{path.name}."


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Convert errors of the file system to a message for the user."""
    try:
        yield
    except OSError as error:
        raise DataDirectoryError(
            f"{path} cannot be used as a data directory ({error.strerror or error}): "
            "choose a directory you may write to"
        ) from error
