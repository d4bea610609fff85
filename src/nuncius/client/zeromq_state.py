"""State of a reliable pub/sub client: its last ids, counts and pending messages.

The file is one JSON document. It is replaced as a whole: written beside the old one, synced to disk, renamed
over it, and the directory synced; so a crash at any moment leaves the old one or the new one. One process at
a time may use it. The lock is a file of its own, because a lock on the state file would vanish when that is
replaced; the kernel releases the lock of a killed process.
"""

import fcntl
import os
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import msgspec

from nuncius.client.errors import InvalidInput, NunciusError

_NAME_BYTES = 200  # of a file's name, which may have 255


class StateInUse(NunciusError):
    """Another process uses the state file."""


class StateDamaged(NunciusError):
    """The state file has unexpected content."""


class Publication(msgspec.Struct, omit_defaults=True):
    """Messages of this client in one topic: `count` are known to be stored, and `pending` have the next
    counts. Some of the pending ones may be stored, too."""

    count: Annotated[int, msgspec.Meta(ge=0)] = 0
    pending: list[bytes] = []


class Remembered(msgspec.Struct):
    client: str
    subscriptions: dict[str, Annotated[int, msgspec.Meta(ge=-1)]] = {}
    """The id of the last message of each topic."""
    publications: dict[str, Publication] = {}


def default_directory() -> Path:
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "nuncius" / "pubsub"


class ClientState:
    """The state of one client, locked until it is closed. Change `remembered`, then call `save`."""

    def __init__(self, client_id: str, directory: Path) -> None:
        name = _file_name(client_id)
        self._directory = directory
        self._file = directory / f"{name}.json"
        _make(directory)
        self._lock = os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StateInUse(f"another process uses {self._file}") from None
            self.remembered = self._load(client_id)
            self._saved = msgspec.json.encode(self.remembered)
        except BaseException:
            os.close(self._lock)
            raise

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def save(self) -> None:
        """Save the state to disk. If this raises, `remembered` is as it was after the last save."""
        text = msgspec.json.encode(self.remembered)
        try:
            self._write(text + b"\n")
        except BaseException:
            self.remembered = msgspec.json.decode(self._saved, type=Remembered)
            raise
        self._saved = text

    def _write(self, text: bytes) -> None:
        draft = self._file.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._file)
        _sync(self._directory)

    def _load(self, client_id: str) -> Remembered:
        try:
            text = self._file.read_bytes()
        except FileNotFoundError:
            return Remembered(client_id)
        try:
            remembered = msgspec.json.decode(text, type=Remembered)
        except msgspec.MsgspecError as error:
            raise StateDamaged(f"{self._file} is damaged ({error}): restore it or remove it") from None
        if remembered.client != client_id:
            raise StateDamaged(f"{self._file} belongs to client {remembered.client!r}")
        return remembered


def _make(directory: Path) -> None:
    """Create a directory and its parents so that they survive a crash."""
    if not directory.is_dir():
        _make(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        _sync(directory.parent)


def _sync(directory: Path) -> None:
    """Sync the names in a directory to disk."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _file_name(client_id: str) -> str:
    try:
        name = quote(client_id, safe="")
    except UnicodeEncodeError:
        raise InvalidInput("the id of a client is valid Unicode") from None
    if not name or len(name) > _NAME_BYTES:
        raise InvalidInput("the id of a client is neither empty nor very long")
    return name.replace(".", "%2E")  # neither a hidden file nor the parent directory
