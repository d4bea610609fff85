"""Fixtures for PostgreSQL servers that a test may suspend, demote and fail over."""

import contextlib
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from fix_store import execute, new_folder
from nuncius.store.server import account as accounts
from nuncius.store.server import embedded, pgbinaries
from nuncius.store.server.account import Account


@dataclass(frozen=True)
class OwnServer:
    """A server of one test."""

    dsn: str
    cluster: Path
    """The directory with its data and its socket."""

    def suspend(self) -> None:
        """Have the server fall silent, like a frozen machine: connections stay, and nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """Signal the postmaster, which then starts no more processes, and those it has started."""
        postmaster = psutil.Process(int((self.cluster / "postmaster.pid").read_text().split()[0]))
        postmaster.send_signal(number)
        for process in postmaster.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def accept_writes(self, *, yes: bool) -> None:
        """Demote the server, or promote it again, without ending a connection."""
        execute(self.dsn, f"alter system set default_transaction_read_only = {'off' if yes else 'on'}")
        execute(self.dsn, "select pg_reload_conf()")


@pytest.fixture
def own_server(data_dir: Path) -> Iterator[OwnServer]:
    """A server that the test may suspend."""
    server = OwnServer(embedded.start(data_dir).dsn, data_dir / "postgres")
    yield server
    server.resume()


@dataclass(frozen=True)
class Pair:
    """A primary and its synchronous standby."""

    primary: OwnServer
    standby: OwnServer
    account: Account

    @property
    def dsn(self) -> str:
        """The address of both, as a node gets it."""
        hosts = f"{self.primary.cluster},{self.standby.cluster}"
        return f"postgresql://nuncius@/nuncius?host={hosts}&port=5432"

    def promote(self) -> None:
        """Have the standby accept writes."""
        run(self.account, "pg_ctl", "promote", "--wait", f"--pgdata={self.standby.cluster}")


@pytest.fixture
def pair(own_server: OwnServer) -> Iterator[Pair]:
    """A primary and a standby; what is acknowledged is on both."""
    parent = new_folder()
    cluster = parent / "standby"
    standby = OwnServer(own_server.dsn.replace(str(own_server.cluster), str(cluster)), cluster)
    account = accounts.choose(own_server.cluster)
    account.own(parent)
    at = f"--pgdata={cluster}"
    source = [f"--host={own_server.cluster}", "--username=nuncius", "--checkpoint=fast"]
    run(account, "pg_basebackup", *source, "--write-recovery-conf", at)
    (cluster / ".s.PGSQL.5432.lock").unlink()  # the primary's
    options = f"--options=-c unix_socket_directories='{cluster}'"
    run(account, "pg_ctl", "start", "--wait", options, f"--log={parent / 'log'}", at)
    try:
        execute(own_server.dsn, "alter system set synchronous_standby_names = '*'")
        execute(own_server.dsn, "select pg_reload_conf()")
        yield Pair(own_server, standby, account)
    finally:
        run(account, "pg_ctl", "stop", "--mode=immediate", at)
        shutil.rmtree(parent)


def run(account: Account, program: str, *arguments: str) -> None:
    """Run one of PostgreSQL's programs as the account of the servers."""
    done = account.run([pgbinaries.find().program(program), *arguments])
    if done.returncode != 0:
        raise RuntimeError(f"{program} failed: {done.stdout}{done.stderr}")
