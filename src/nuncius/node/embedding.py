"""The embedded PostgreSQL server as nodes use it: shared, watched, and stopped by the last node.

Any number of nodes may use one data directory. Each holds a shared lock on the directory's marker file as
long as it runs; the kernel releases the lock however a node ends. A node that ends tries to take the
exclusive lock. It succeeds only when no other node is left, and then stops the server, even if another node
started it. So after a clean end no unused server is left, and no server stops while a node uses it. After
`kill -9` of the last node the server keeps running, and the next node takes it over. Other programs (psql,
Spark) do not count.

A node also watches the server: one that crashed is started again.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nuncius.store import environment
from nuncius.store.errors import StoreError
from nuncius.store.server import embedded
from nuncius.store.server.datadir import DataDirectory
from nuncius.store.server.embedded import EmbeddedServer

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5


@contextmanager
def hosted(data_dir: Path, *, tcp_port: int | None = None) -> Iterator[EmbeddedServer]:
    """Run the server for the length of the context."""
    try:
        server, lock = _join(data_dir, tcp_port)
    except (KeyboardInterrupt, SystemExit):
        _stop_if_alone(data_dir)  # the server may have been started already
        raise
    try:
        with _watched(server, tcp_port):
            yield server
    finally:
        os.close(lock)
        _stop_if_alone(data_dir)


@contextmanager
def opened(
    data_dir: Path | None, dsn: str | None, *, tcp_port: int | None = None
) -> Iterator[tuple[str, Path | None]]:
    """Open an existing store, or the embedded one in this directory or else the default directory. Yield its
    address, and the directory of an embedded store."""
    if dsn is not None:
        yield dsn, None
        return
    directory = (data_dir or environment.default_data_dir()).absolute()
    with hosted(directory, tcp_port=tcp_port) as server:
        yield server.dsn, directory


def wait_until_left(data_dir: Path, seconds: float) -> bool:
    """Wait until no node uses the directory. Return False if some still do."""
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
    """Start or attach to the server, and count as its user from then on."""
    while True:
        server = embedded.start(data_dir, tcp_port=tcp_port)
        lock = _lock(data_dir, fcntl.LOCK_SH)
        # The last user may have stopped the server between attaching and locking.
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
    """Take the lock and return it as an open file, or None if other nodes hold it or the directory is not
    Nuncius's."""
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
