"""The postmaster of a cluster: whether it is alive and ready, and the remains of a dead one.

PostgreSQL writes `postmaster.pid`: process, directory, start time, port, socket directory, address,
shared memory, state. After `kill -9` the file stays, another program may get the same process id, and
backends may outlive their postmaster and keep the shared memory that a new one refuses to share.
So a process id alone proves nothing: a process is ours if it is a live `postgres` whose working
directory is our cluster, which holds for the postmaster and every process it forks.
"""

import os
import signal
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from nuncius.store.errors import ServerStartError

_ORPHANS_LEAVE_BY_THEMSELVES = 3.0  # seconds; idle ones notice at once, busy ones at their next wait
_PAUSE = 0.02
_ANSWER_SECONDS = 2.0
_ASK_FOR_ENCRYPTION = struct.pack(">ii", 8, 80877103)  # answered with one letter, without a login


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A live postmaster, as described by `postmaster.pid`."""

    pid: int
    port: int
    socket_dir: str
    address: str
    state: str

    @property
    def ready(self) -> bool:
        """Return True if it accepts connections."""
        return self.state == "ready"


def find(cluster: Path) -> Postmaster | None:
    """Return the live postmaster of a cluster, ready or not."""
    lines = _lines(cluster / "postmaster.pid")
    if not lines or not lines[0].isdigit() or not _is_ours(int(lines[0]), cluster):
        return None
    lines += [""] * (8 - len(lines))  # written bit by bit while the server starts
    pid, _, _, port, socket_dir, address, _, state = lines[:8]
    return Postmaster(int(pid), int(port or 0), socket_dir, address, state)


def answers(postmaster: Postmaster) -> bool:
    """Return True if it answers a request. One that was just killed looks alive but does not answer."""
    address = f"{postmaster.socket_dir}/.s.PGSQL.{postmaster.port}"
    try:
        with socket.socket(socket.AF_UNIX) as conversation:
            conversation.settimeout(_ANSWER_SECONDS)
            conversation.connect(address)
            conversation.sendall(_ASK_FOR_ENCRYPTION)
            return conversation.recv(1) in (b"N", b"S", b"E")
    except OSError:
        return False


def wait_until_gone(pid: int, cluster: Path, seconds: float) -> bool:
    """Wait for one process of the cluster to end. Return False if it did not."""
    deadline = time.monotonic() + seconds
    while _is_ours(pid, cluster):
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def wait_until_ready(pid: int, cluster: Path, seconds: float) -> Postmaster:
    """Wait until the postmaster is ready, through crash recovery, as long as it lives."""
    deadline = time.monotonic() + seconds
    while True:
        postmaster = find(cluster)
        if postmaster is not None and postmaster.ready and postmaster.socket_dir:
            return postmaster
        if postmaster is None and not _is_alive(pid):
            raise ServerStartError("it stopped while starting")
        if time.monotonic() > deadline:
            raise ServerStartError(f"it was not ready after {seconds:.0f} s")
        time.sleep(_PAUSE)


def wait_until_alone(cluster: Path, seconds: float) -> bool:
    """Wait until no process of the cluster is left. Return False if some are."""
    deadline = time.monotonic() + seconds
    while _processes(cluster):
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def clear_remains(cluster: Path) -> None:
    """Kill the backends that a dead postmaster left, and remove its misleading lock files.

    Backends without a postmaster can do nothing useful, and everything they committed is in the
    log, so killing them is safe; starting beside them would not be, and PostgreSQL refuses it.
    """
    if not wait_until_alone(cluster, _ORPHANS_LEAVE_BY_THEMSELVES):
        for pid in _processes(cluster):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not wait_until_alone(cluster, _ORPHANS_LEAVE_BY_THEMSELVES):
            left = ", ".join(map(str, _processes(cluster)))
            raise ServerStartError(f"processes {left} of a dead server do not end: end them first")
    lines = _lines(cluster / "postmaster.pid")
    if len(lines) > 4:
        _remove_if_misleading(Path(lines[4]) / f".s.PGSQL.{lines[3]}.lock", cluster)
    _remove_if_misleading(cluster / "postmaster.pid", cluster)


def _remove_if_misleading(lock: Path, cluster: Path) -> None:
    """Remove a lock file that a zombie or an unrelated process seems to hold. PostgreSQL would believe it.

    The second line names the cluster, so a lock of another server is never removed.
    """
    lines = _lines(lock)
    is_ours = len(lines) > 1 and lines[0].isdigit() and Path(lines[1]) == cluster
    if is_ours and psutil.pid_exists(int(lines[0])):
        lock.unlink(missing_ok=True)


def _lines(file: Path) -> list[str]:
    try:
        return [line.strip() for line in file.read_text().splitlines()]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _processes(cluster: Path) -> list[int]:
    return [pid for pid in psutil.pids() if _is_ours(pid, cluster)]


def _is_ours(pid: int, cluster: Path) -> bool:
    try:
        process = psutil.Process(pid)
        if process.name() != "postgres" or process.status() == psutil.STATUS_ZOMBIE:
            return False
        return Path(process.cwd()) == cluster.resolve()
    except psutil.Error:
        return False


def is_suspended(pid: int) -> bool:
    """Return whether the process was stopped by a signal, and may be resumed."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:
        return False


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
