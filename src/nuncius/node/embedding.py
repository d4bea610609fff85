"""The embedded server in the care of nodes: shared, watched, and stopped by the last to leave.

Any number of nodes may use one data directory. Each holds a shared lock on the directory's marker file for
as long as it lives; the kernel gives the lock back however a node ends. A node that leaves tries for the
exclusive lock: it gets it only when no other node is left, and then it stops the server, whoever started it.
So a server never runs for nobody after a clean end, and never ends under somebody's feet. After `kill -9` of
the last node it runs on, and the next node takes it over. Other programs (psql, Spark) do not count.

A node also looks after the server while it runs: one that crashed is started again.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nuncius.store.errors import StoreError
from nuncius.store.server import embedded
from nuncius.store.server.datadir import DataDirectory
from nuncius.store.server.embedded import EmbeddedServer

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5


@contextmanager
def hosted(data_dir: Path, *, tcp_port: int | None = None) -> Iterator[EmbeddedServer]:
    """A running server for as long as the context lasts."""
    try:
        server, lock = _join(data_dir, tcp_port)
    except (KeyboardInterrupt, SystemExit):
        _stop_if_alone(data_dir)  # it may have been started already
        raise
    try:
        with _watched(server, tcp_port):
            yield server
    finally:
        os.close(lock)
        _stop_if_alone(data_dir)


def wait_until_left(data_dir: Path, seconds: float) -> bool:
    """Waits until no node uses the directory; False when some still do."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.05)):
        lock = _lock(data_dir, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if lock is not None:
            os.close(lock)
            return True
        if not DataDirectory(data_dir).is_ours:
            return True
        pause.wait(0.05)
    return False


def _join(data_dir: Path, tcp_port: int | None) -> tuple[EmbeddedServer, int]:
    """Starts or attaches, and counts as a user of the server from then on."""
    while True:
        server = embedded.start(data_dir, tcp_port=tcp_port)
        lock = _lock(data_dir, fcntl.LOCK_SH)
        # The last user may have stopped the server after we attached and before we counted.
        now = embedded.running(data_dir)
        if lock is not None and now is not None and now.pid == server.pid:
            return server, lock
        if lock is not None:
            os.close(lock)


def _stop_if_alone(data_dir: Path) -> None:
    alone = _lock(data_dir, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if alone is None:
        return
    try:
        embedded.stop(data_dir)
    finally:
        os.close(alone)


def _lock(data_dir: Path, kind: int) -> int | None:
    """The lock, as an open file; None if others hold it or the directory is not ours."""
    try:
        file = os.open(DataDirectory(data_dir).marker, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, kind)
    except BlockingIOError:
        os.close(file)
        return None
    return file


@contextmanager
def _watched(server: EmbeddedServer, tcp_port: int | None) -> Iterator[None]:
    leaving = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(server, tcp_port, leaving), name="nuncius-store", daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        leaving.set()
        watcher.join()


def _watch(server: EmbeddedServer, tcp_port: int | None, leaving: threading.Event) -> None:
    while not leaving.wait(LOOK_SECONDS):
        if embedded.running(server.data_dir) is None:
            log.warning("the embedded server is gone; starting it again")
            try:
                embedded.start(server.data_dir, tcp_port=tcp_port)
            except (StoreError, OSError) as error:
                log.error(  # noqa: TRY400 - the message says it all
                    "the embedded server does not start", extra={"error": str(error)}
                )
            else:
                log.warning("the embedded server runs again")
