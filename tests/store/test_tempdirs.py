"""Temporary directories go with their owners, however those end."""

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nuncius.store import tempdirs
from nuncius.store.server import account, embedded

OWNER = """
import sys
from nuncius.store import tempdirs
made = tempdirs.make()
(made.path / "inside").mkdir()
(made.path / "inside" / "file").touch()
print(made.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files, for this process and those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def owner(parent: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process with a directory that has something in it."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        yield process
        process.kill()


def test_an_owner_that_is_killed(parent: Path, owner: "subprocess.Popen[str]") -> None:
    """Its directory stays while it lives. The first sweep after its death removes it with its content."""
    assert owner.stdout is not None
    made = Path(owner.stdout.readline().strip())
    assert made.parent == parent
    assert made.stat().st_mode & 0o777 == 0o700
    tempdirs.sweep()
    assert (made / "inside" / "file").exists()
    owner.kill()
    owner.wait()
    assert made.exists()
    tempdirs.sweep()
    assert list(parent.iterdir()) == []


@pytest.mark.usefixtures("parent")
def test_a_process_that_inherits_the_directory() -> None:
    """The directory of an owner that was killed stays while a process that uses it, too, lives."""
    made = tempdirs.make()
    heir = subprocess.Popen(["/bin/sleep", "600"], pass_fds=[made.lock])
    os.close(made.lock)  # as the kernel does when an owner ends
    try:
        tempdirs.sweep()
        assert made.path.exists()
    finally:
        heir.kill()
        heir.wait()
    tempdirs.sweep()
    assert not made.path.exists()


def test_an_owner_that_ends(parent: Path) -> None:
    """An orderly owner removes its directory itself."""
    made = tempdirs.make("nuncius-x-", str(parent))
    assert made.path.name.startswith("nuncius-x-")
    (made.path / "file").touch()
    made.remove()
    assert list(parent.iterdir()) == []


def test_what_is_none_of_ours(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories without a lock, with another name or of another account, files, links and what they lead to
    are left alone."""
    elsewhere = parent / "elsewhere"
    inside = parent / "nuncius-linked"
    for each in (elsewhere, inside, parent / "nuncius-unlocked"):
        each.mkdir()
    for each in (elsewhere / tempdirs.LOCK, elsewhere / "precious", parent / "nuncius-file"):
        each.touch()
    (parent / "nuncius-link").symlink_to(elsewhere)
    (inside / tempdirs.LOCK).symlink_to(elsewhere / tempdirs.LOCK)
    stranger = tempdirs.make()
    os.close(stranger.lock)
    before = sorted(parent.rglob("*"))
    with monkeypatch.context() as patched:
        patched.setattr(account, "ours", lambda: {os.geteuid() + 1})
        tempdirs.sweep()
    assert sorted(parent.rglob("*")) == before
    tempdirs.sweep()
    left = [each for each in before if stranger.path not in {each, each.parent}]
    assert sorted(parent.rglob("*")) == left


def test_links_in_a_directory_without_owner(parent: Path) -> None:
    """A link goes with its directory, and what it leads to stays."""
    precious = parent / "precious"
    precious.mkdir()
    (precious / "file").touch()
    made = tempdirs.make()
    os.close(made.lock)
    (made.path / "link").symlink_to(precious)
    tempdirs.sweep()
    assert not made.path.exists()
    assert (precious / "file").exists()


@pytest.mark.usefixtures("parent")
def test_a_directory_that_is_claimed_while_it_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claimed directory stays; one that was removed before that is reported as gone."""
    made = tempdirs.make()
    os.close(made.lock)
    lock_file = made.path / tempdirs.LOCK
    flock = fcntl.flock

    def after_a_sweep(file: int, kind: int) -> None:
        """The file was opened; before it is locked, another process removes the directory."""
        monkeypatch.setattr(fcntl, "flock", flock)
        tempdirs.sweep()
        assert not lock_file.exists()
        flock(file, kind)

    monkeypatch.setattr(fcntl, "flock", after_a_sweep)
    with pytest.raises(FileNotFoundError):
        tempdirs.claim(made.path)
    tries = []

    def claim(path: Path) -> int:
        tries.append(path)
        if len(tries) == 1:
            path.rmdir()
        return real(path)

    real = tempdirs.claim
    monkeypatch.setattr(tempdirs, "claim", claim)
    again = tempdirs.make()
    assert tries[1:] == [again.path]
    again.remove()


def test_the_directory_of_a_server_s_socket(
    data_dir: Path, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has an owner while the server runs, also after the program that started it has died."""
    parent.chmod(0o755)
    for each in parent.parents[:2]:  # the server may have an account of its own
        each.chmod(0o755)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    directory = data_dir / ("long" * 30)
    embedded.start(directory)
    try:
        (socket_dir,) = parent.glob("nuncius-*")
        assert (socket_dir / tempdirs.LOCK).exists()
        tempdirs.sweep()
        assert embedded.running(directory) is not None
        assert (socket_dir / ".s.PGSQL.5432").exists()
    finally:
        embedded.stop(directory)
    assert list(parent.glob("nuncius-*")) == []
