"""The embedded PostgreSQL server: started once, found again, stopped cleanly.

The server does not belong to the process that starts it. It has a session of its own, so neither
Ctrl-C nor `kill -9` of a node reaches it; the next node attaches to it. A process that starts or stops
it holds the directory's lock, so any number of processes may call `start` at once.

Connections need no password on the Unix socket, because its directory admits only the server's
account and root. TCP is off unless requested, and then needs the password in the data directory.
"""

import hashlib
import logging
import os
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from nuncius.store import tempdirs
from nuncius.store.errors import ServerStartError
from nuncius.store.server import account as accounts
from nuncius.store.server import pgbinaries, pgsettings, postmaster
from nuncius.store.server.account import Account
from nuncius.store.server.datadir import DataDirectory, write

log = logging.getLogger(__name__)

DATABASE = "nuncius"
ROLE = "nuncius"
PATIENCE = 300.0  # seconds for crash recovery, or for the last checkpoint
DYING_SECONDS = 5.0  # a killed process is gone by then
_SOCKET_PATH_LIMIT = 103  # bytes; Linux allows 107, other systems 103
_SOCKET_NAME = "/.s.PGSQL.65535"

# A shell detaches the server: when the shell ends, init is the parent, and this process gets no zombie.
_DETACH = '"$@" </dev/null >&2 & echo $!'


_CREATE_DATABASE = """\
select 'create database nuncius'
where not exists (select from pg_database where datname = 'nuncius') \\gexec
"""


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A running embedded server."""

    dsn: str
    data_dir: Path
    pid: int
    started_here: bool
    """False if it was running before."""


def start(data_dir: Path, *, tcp_port: int | None = None) -> EmbeddedServer:
    """Start the server of a data directory, or attach to it if it runs.

    Block until the server accepts connections, through crash recovery if necessary. With `tcp_port`
    it also listens on 127.0.0.1, for role `nuncius` with the password in `data_dir/password`.
    """
    directory = DataDirectory(data_dir.absolute())
    begin = [] if directory.has_cluster else accounts.named()  # before anything is made
    with directory.prepared():
        found = _settled(directory)
        if found is not None:
            _check_tcp(found, tcp_port)
            return _server(directory, found, started_here=False)
        account = accounts.choose(directory.cluster)
        accounts.let_use(account, pgbinaries.find().root)
        accounts.let_through(account, directory.cluster)
        if not directory.cluster.exists():
            _make_cluster(directory, account, begin)
        postmaster.clear_remains(directory.cluster)
        with _socket_dir(directory, account) as (socket_dir, locks):
            _write_settings(directory, account, socket_dir, tcp_port)
            server = _server(directory, _launch(directory, account, locks), started_here=True)
        _ensure_database(server)
        if tcp_port is not None:
            _ensure_password(directory, server)
        return server


def stop(data_dir: Path) -> None:
    """Stop the server with a checkpoint and wait until it is gone. Do nothing if none runs. A server that is
    suspended (SIGSTOP) stops when it is resumed; nothing waits for that."""
    directory = DataDirectory(data_dir.absolute())
    if not directory.is_ours:
        return
    with directory.locked():
        found = postmaster.find(directory.cluster)
        if found is None:
            return
        with suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGINT)
        if postmaster.is_suspended(found.pid):
            log.warning("the embedded server is suspended and stops later", extra={"pid": found.pid})
            return
        if not postmaster.wait_until_gone(found.pid, directory.cluster, PATIENCE):
            raise ServerStartError(
                f"the embedded server (process {found.pid}) does not stop: see {directory.log}"
            )
        socket_dir = Path(found.socket_dir)
        if found.socket_dir and socket_dir != directory.cluster:
            with suppress(OSError):
                (socket_dir / tempdirs.LOCK).unlink(missing_ok=True)
                socket_dir.rmdir()


def running(data_dir: Path) -> EmbeddedServer | None:
    """Return the server of a data directory if it accepts connections. Start nothing."""
    directory = DataDirectory(data_dir.absolute())
    if not directory.is_ours:
        return None
    found = postmaster.find(directory.cluster)
    if found is None or not found.ready:
        return None
    return _server(directory, found, started_here=False)


def _settled(directory: DataDirectory) -> postmaster.Postmaster | None:
    """Return the ready postmaster, or None. Wait for one that is starting or stopping."""
    found = postmaster.find(directory.cluster)
    if found is None:
        return None
    if found.ready:
        is_dying = not postmaster.answers(found) and postmaster.wait_until_gone(
            found.pid, directory.cluster, DYING_SECONDS
        )
        return None if is_dying else found
    if found.state == "stopping":
        postmaster.wait_until_gone(found.pid, directory.cluster, PATIENCE)
        return None
    return postmaster.wait_until_ready(found.pid, directory.cluster, PATIENCE)


def _check_tcp(found: postmaster.Postmaster, tcp_port: int | None) -> None:
    if tcp_port is not None and (found.port != tcp_port or not found.address):
        raise ServerStartError(f"the embedded server is running without TCP port {tcp_port}: stop it first")


def _server(directory: DataDirectory, found: postmaster.Postmaster, *, started_here: bool) -> EmbeddedServer:
    host = quote(found.socket_dir, safe="/")
    dsn = f"postgresql://{ROLE}@/{DATABASE}?host={host}&port={found.port}"
    return EmbeddedServer(dsn, directory.path, found.pid, started_here)


def _make_cluster(directory: DataDirectory, account: Account, begin: list[str]) -> None:
    new = directory.unfinished_cluster
    if new.exists():
        shutil.rmtree(new)
    new.mkdir(mode=0o700)
    account.own(new)
    made = account.run(
        [
            *begin,
            pgbinaries.find().program("initdb"),
            f"--pgdata={new}",
            f"--username={ROLE}",
            "--auth-local=trust",  # only root and the server's account reach the socket
            "--auth-host=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--locale-provider=builtin",  # the same everywhere, whatever the system has installed
            "--builtin-locale=C.UTF-8",
            "--data-checksums",
        ]
    )
    if made.returncode != 0:
        raise ServerStartError(f"initdb failed: {(made.stderr or '').strip()}")
    conf = new / "postgresql.conf"
    account.own(write(conf, conf.read_text() + pgsettings.INCLUDES))
    new.rename(directory.cluster)


def _write_settings(
    directory: DataDirectory, account: Account, socket_dir: Path, tcp_port: int | None
) -> None:
    text = pgsettings.render(
        socket_dir=socket_dir,
        tcp_port=tcp_port,
        lz4=pgbinaries.find().has_lz4,
    )
    account.own(write(directory.cluster / pgsettings.FILE, text))


@contextmanager
def _socket_dir(directory: DataDirectory, account: Account) -> Iterator[tuple[Path, list[int]]]:
    """Yield the cluster's directory, or a short private one if its path is unfit for a socket address.

    Also yield the open files that the server inherits to own the directory.
    """
    inside = directory.cluster
    short = len(os.fsencode(inside)) + len(_SOCKET_NAME) <= _SOCKET_PATH_LIMIT
    if short and not set(',"@') & set(str(inside)):
        yield inside, []
        return
    # Root's runtime directory is closed to the server's account, so root uses the common one.
    runtime = None if account.is_another else os.environ.get("XDG_RUNTIME_DIR")
    name = hashlib.sha256(os.fsencode(directory.path.resolve())).hexdigest()[:16]
    outside = Path(runtime or tempfile.gettempdir()) / f"{tempdirs.PREFIX}{name}"
    lock = _own(outside, account)
    try:
        yield outside, [lock]
    finally:
        os.close(lock)


def _own(outside: Path, account: Account) -> int:
    """Make a private directory for the socket, unless it is there, and claim it."""
    try:
        outside.mkdir(mode=0o700)
        account.own(outside)
    except FileExistsError:
        found = outside.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != account.uid or found.st_mode & 0o077:
            raise ServerStartError(
                f"{outside}, needed for the socket, belongs to another user: remove it, "
                "or use a data directory with a shorter path"
            ) from None
    try:
        lock = tempdirs.claim(outside)
        account.own(outside / tempdirs.LOCK)
    except FileNotFoundError:  # another process has just removed the directory of an earlier server
        return _own(outside, account)
    return lock


def _launch(directory: DataDirectory, account: Account, locks: list[int]) -> postmaster.Postmaster:
    program = pgbinaries.find().program("postgres")
    command = ["/bin/sh", "-c", _DETACH, "sh", program, "-D", str(directory.cluster)]
    with directory.log.open("wb") as log:
        launched = account.run(command, stderr=log, new_session=True, pass_fds=locks)
    try:
        return postmaster.wait_until_ready(int(launched.stdout), directory.cluster, PATIENCE)
    except ServerStartError as error:
        raise ServerStartError(
            f"the embedded server did not start: {error}. It said: {_last_words(directory)}. "
            f"More is in {directory.log} and {directory.cluster / 'log'}"
        ) from error


def _last_words(directory: DataDirectory) -> str:
    """Return the last error in the log that the server wrote to last."""
    postmaster.wait_until_alone(directory.cluster, 3)  # its logger writes the rest, then ends
    logs = [directory.log, *(directory.cluster / "log").glob("*.log")]
    newest = max(logs, key=lambda log: log.stat().st_mtime_ns)
    with newest.open("rb") as file:
        file.seek(max(0, newest.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").strip().splitlines() or ["nothing"]
    complaints = [line for line in lines if "FATAL" in line or "PANIC" in line]
    return (complaints or lines)[-1]


def _ensure_database(server: EmbeddedServer) -> None:
    _psql(server, _CREATE_DATABASE)


def _ensure_password(directory: DataDirectory, server: EmbeddedServer) -> None:
    if not directory.password.exists():
        password = secrets.token_urlsafe(24)
        _psql(server, f"alter role {ROLE} password '{password}';\n")
        write(directory.password, password + "\n")


def _psql(server: EmbeddedServer, script: str) -> None:
    """Run SQL as the owner. `start` may be called under a running event loop: no asyncpg here."""
    command = [pgbinaries.find().program("psql"), "--no-psqlrc", "--quiet"]
    command += ["--set=ON_ERROR_STOP=1", server.dsn.replace(f"/{DATABASE}?", "/postgres?")]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerStartError(f"the embedded server could not be set up: {done.stderr.strip()}")
