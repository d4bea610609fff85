"""As root, the server runs as an account of its own, and nothing is opened more than it must."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nuncius.store.errors import DataDirectoryError
from nuncius.store.server import account as accounts
from nuncius.store.server import embedded
from nuncius.store.server.account import Account

NOBODY = Account(65534, 65534)
CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"

USERDEL = shutil.which("userdel", path="/usr/sbin:/sbin") or ""

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other accounts")


@root_only
def test_closed_directories_open_for_one_account(data_dir: Path) -> None:
    """A closed directory on the way lets the server's account pass, nobody else, and not list."""
    closed = data_dir / "closed"
    inner = closed / "inner"
    inner.mkdir(parents=True)
    data_dir.chmod(0o755)
    data_dir.parent.chmod(0o755)
    closed.chmod(0o700)
    server_account = Account(65533, 65533)
    accounts.let_through(server_account, inner)
    accounts.let_through(NOBODY, inner)
    accounts.let_through(NOBODY, inner)
    assert server_account.can("-x", inner)
    assert NOBODY.can("-x", inner)
    assert not server_account.can("-r", closed)
    assert not Account(65532, 65532).can("-x", inner)
    assert not Account(65532, 0).can("-x", inner)


@root_only
def test_file_systems_without_access_lists(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no access-control entries, a closed directory may be passed, not listed."""
    monkeypatch.setattr(accounts, "_ACL", "system.no_such_list")
    data_dir.mkdir(mode=0o700)
    accounts.let_through(NOBODY, data_dir / "postgres")
    assert NOBODY.can("-x", data_dir)
    assert not NOBODY.can("-r", data_dir)


@root_only
def test_programs_installed_for_root_only(data_dir: Path) -> None:
    """Programs that were installed with a strict umask become usable for the server's account."""
    programs = data_dir / "wheel" / "pginstall"
    (programs / "bin").mkdir(parents=True)
    data_dir.parent.chmod(0o711)
    shutil.copy("/bin/true", programs / "bin" / "postgres")
    (data_dir / "wheel.libs").mkdir()
    for path in data_dir.rglob("*"):
        path.chmod(0o700)
    accounts.let_use(NOBODY, programs)
    assert NOBODY.run([str(programs / "bin" / "postgres")]).returncode == 0


@root_only
def test_socket_is_closed_to_others(data_dir: Path) -> None:
    """Local connections need no password: only root and the server may reach the socket."""
    data_dir.mkdir()
    data_dir.chmod(0o755)
    data_dir.parent.chmod(0o755)
    embedded.start(data_dir)
    path = str(data_dir / "postgres" / ".s.PGSQL.5432")
    with socket.socket(socket.AF_UNIX) as allowed:
        allowed.connect(path)
    python = ["/usr/bin/env", "-i", sys.executable, "-c", CONNECT, path]
    if NOBODY.can("-x", Path(sys.executable)):
        refused = NOBODY.run(python)
        assert "PermissionError" in refused.stderr
    assert not NOBODY.can("-S", Path(path))


@root_only
def test_root_runs_a_users_server_as_that_user(data_dir: Path) -> None:
    """A cluster is served by its owner's account, whoever starts it."""
    cluster = data_dir / "postgres"
    cluster.mkdir(parents=True)
    os.chown(cluster, NOBODY.uid, NOBODY.gid)
    assert accounts.choose(cluster) == NOBODY


@root_only
def test_a_cluster_of_root_is_refused(data_dir: Path) -> None:
    """A cluster that belongs to root cannot be served, and the error says so."""
    data_dir.mkdir()
    with pytest.raises(DataDirectoryError, match="belongs to user 0"):
        accounts.choose(data_dir)


def test_strange_settings_stay_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """PG* variables of the user's own shell do not reach our programs."""
    monkeypatch.setenv("PGPORT", "1")
    mine = Account(os.geteuid(), os.getegid())
    assert "PGPORT" not in mine.run(["/usr/bin/env"], stderr=subprocess.DEVNULL).stdout


@root_only
@pytest.mark.skipif(not USERDEL, reason="the account has to go again")
def test_a_new_account_is_mentioned(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That an account was made on the system is a line in the log that says why."""
    name = f"nuncius-test-{os.getpid()}"
    monkeypatch.setattr(accounts, "NAME", name)
    try:
        assert accounts.choose(data_dir / "postgres").is_another
    finally:
        subprocess.run([USERDEL, name], check=True, capture_output=True)
    (record,) = caplog.records
    assert "made a system account for PostgreSQL, which does not run as root" in record.message
    assert vars(record)["account"] == name


def test_the_servers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is started without its user's settings and without addresses that may hold a password."""
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("NUNCIUS_STORE", "postgresql://me:canary@host/x")
    seen = Account(os.geteuid(), os.getegid()).run(["/usr/bin/env"]).stdout
    assert "PATH=" in seen
    assert "PGPORT" not in seen
    assert "canary" not in seen
