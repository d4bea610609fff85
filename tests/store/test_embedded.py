"""The embedded server starts, is found again, survives what kills others, and refuses strangers."""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from nuncius.store.errors import DataDirectoryError, ServerStartError
from nuncius.store.server import embedded, postmaster
from nuncius.store.server.datadir import DataDirectory
from nuncius.testing import free_port

START = """
import sys, os, signal
from pathlib import Path
from nuncius.store.server import embedded, postmaster
server = embedded.start(Path(sys.argv[1]))
print(server.pid, server.started_here, flush=True)
if sys.argv[2] == "die":
    os.kill(os.getpid(), signal.SIGKILL)
"""


async def fetch(dsn: str, query: str) -> Any:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def run(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def starter(data_dir: Path, then: str = "leave") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", START, str(data_dir), then]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kill(pid: int) -> None:
    """Kills a process as `kill -9` does and waits for its end, though we are not its parent."""
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([process], [], [], 10)
    os.close(process)


async def test_start_attach_stop(data_dir: Path) -> None:
    """The first start starts, the second attaches, stop ends the server and may be repeated."""
    assert embedded.running(data_dir) is None
    first = embedded.start(data_dir)
    second = embedded.start(data_dir)
    assert first.started_here
    assert not second.started_here
    assert second == embedded.running(data_dir)
    assert (second.pid, second.dsn) == (first.pid, first.dsn)
    assert await fetch(first.dsn, "select current_database()") == "nuncius"
    embedded.stop(data_dir)
    embedded.stop(data_dir)
    assert embedded.running(data_dir) is None
    assert not psutil.pid_exists(first.pid) or psutil.Process(first.pid).status() == "zombie"


async def test_settings(data_dir: Path) -> None:
    """Durability is on, TCP is off, checksums are on, and the user's own settings win."""
    embedded.start(data_dir)
    embedded.stop(data_dir)
    (data_dir / "postgres" / "user.conf").write_text("work_mem = '7MB'\nshared_buffers = '64MB'\n")
    (data_dir / "postgres" / "user.conf").chmod(0o644)
    dsn = embedded.start(data_dir).dsn
    expected = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "data_checksums": "on",
        "listen_addresses": "",
        "max_connections": "500",
        "jit": "off",
        "server_encoding": "UTF8",
        "work_mem": "7MB",
        "shared_buffers": "64MB",
    }
    assert {name: await fetch(dsn, f"show {name}") for name in expected} == expected


def test_outlives_its_starter(data_dir: Path) -> None:
    """The server survives `kill -9` of the process that started it, in a session of its own."""
    with starter(data_dir, "die") as process:
        output, _ = process.communicate(timeout=300)
    pid = int(output.split()[0])
    found = embedded.running(data_dir)
    assert found is not None
    assert found.pid == pid
    assert os.getsid(pid) != os.getsid(0)


def test_many_start_at_once(data_dir: Path) -> None:
    """Of several processes that start one directory at once, one starts and the others attach."""
    processes = [starter(data_dir) for _ in range(4)]
    outputs = [process.communicate(timeout=300)[0].split() for process in processes]
    assert len({pid for pid, _ in outputs}) == 1
    assert sorted(started for _, started in outputs) == ["False", "False", "False", "True"]


def test_a_directory_that_becomes_ours_meanwhile(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory in which another starter writes the marker between two looks is not refused."""
    data_dir.mkdir()
    look = Path.iterdir

    def late_look(path: Path) -> Iterator[Path]:
        if path == data_dir:
            (path / "nuncius.json").write_text(json.dumps({"program": "nuncius", "format": 1}))
        return look(path)

    monkeypatch.setattr(Path, "iterdir", late_look)
    with DataDirectory(data_dir).prepared():
        assert DataDirectory(data_dir).is_ours


def test_a_suspended_server(data_dir: Path) -> None:
    """Nothing waits for a server that is suspended: it stops when it is resumed."""
    server = embedded.start(data_dir)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        while not postmaster.is_suspended(server.pid):
            os.sched_yield()
        embedded.stop(data_dir)
        assert psutil.pid_exists(server.pid)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert postmaster.wait_until_gone(server.pid, DataDirectory(data_dir).cluster, 60)


async def test_server_killed(data_dir: Path) -> None:
    """After `kill -9` of the server a start recovers everything that was committed."""
    server = embedded.start(data_dir)
    await run(server.dsn, "create table t (x int)", "insert into t values (1), (2)")
    kill(server.pid)
    assert embedded.running(data_dir) is None
    again = embedded.start(data_dir)
    assert again.started_here
    assert await fetch(again.dsn, "select sum(x) from t") == 3


async def test_orphaned_backend(data_dir: Path) -> None:
    """A backend that outlives a killed server and holds its memory does not block the restart."""
    server = embedded.start(data_dir)
    connection = await asyncpg.connect(server.dsn)
    orphan = connection.get_server_pid()
    os.kill(orphan, signal.SIGSTOP)  # cannot notice that its postmaster is gone
    kill(server.pid)
    assert embedded.start(data_dir).started_here
    assert not psutil.pid_exists(orphan) or psutil.Process(orphan).status() == "zombie"
    connection.terminate()


def test_pid_file_names_a_stranger(data_dir: Path) -> None:
    """A stale pid file whose number now belongs to another process is not believed."""
    server = embedded.start(data_dir)
    kill(server.pid)
    pid_file = data_dir / "postgres" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as stranger:
        pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        assert embedded.running(data_dir) is None
        assert embedded.start(data_dir).started_here
        assert stranger.poll() is None


async def test_start_while_stopping(data_dir: Path) -> None:
    """A start that meets a server on its way out waits for its end and starts a new one."""
    server = embedded.start(data_dir)
    connection = await asyncpg.connect(server.dsn)
    os.kill(server.pid, signal.SIGTERM)  # stops when the last client leaves
    while "stopping" not in (data_dir / "postgres" / "postmaster.pid").read_text():
        pass  # the file is all that tells
    assert embedded.running(data_dir) is None
    starting = asyncio.create_task(asyncio.to_thread(embedded.start, data_dir))
    await asyncio.sleep(0)
    await connection.close()
    assert (await starting).started_here


async def test_attach_while_recovering(data_dir: Path) -> None:
    """A start that meets a server in crash recovery waits until it is ready, and attaches."""
    server = embedded.start(data_dir)
    kill(server.pid)
    first, second = await asyncio.gather(
        asyncio.to_thread(embedded.start, data_dir), asyncio.to_thread(embedded.start, data_dir)
    )
    assert first.pid == second.pid
    assert {first.started_here, second.started_here} == {True, False}


def test_half_made_cluster(data_dir: Path) -> None:
    """What a killed first start left behind is made again."""
    embedded.start(data_dir)
    embedded.stop(data_dir)
    (data_dir / "postgres").rename(data_dir / "postgres.new")
    assert embedded.start(data_dir).started_here
    assert not (data_dir / "postgres.new").exists()


def test_half_made_marker(data_dir: Path) -> None:
    """A starter killed before its marker had a name leaves a draft, which keeps nobody out."""
    data_dir.mkdir()
    (data_dir / ".nuncius.json.4711").write_text("{")
    with DataDirectory(data_dir).prepared():
        assert DataDirectory(data_dir).is_ours


def test_refuses_a_directory_in_use(data_dir: Path) -> None:
    """A directory with somebody else's files is refused and left as it was."""
    data_dir.mkdir()
    (data_dir / "thesis.tex").touch()
    with pytest.raises(DataDirectoryError, match=r"thesis\.tex.*choose an empty"):
        embedded.start(data_dir)
    assert [path.name for path in data_dir.iterdir()] == ["thesis.tex"]
    embedded.stop(data_dir)
    assert embedded.running(data_dir) is None


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        (json.dumps({"program": "nuncius", "format": 2}), "newer nuncius .format 2"),
        (json.dumps({"program": "other", "format": 1}), "another program, other"),
        ("{}", "cannot be read"),
        ("not json", "cannot be read"),
    ],
)
def test_refuses_other_formats(data_dir: Path, marker: str, message: str) -> None:
    """A directory of a newer program, or with a damaged marker, is refused."""
    data_dir.mkdir()
    (data_dir / "nuncius.json").write_text(marker)
    with pytest.raises(DataDirectoryError, match=message):
        embedded.start(data_dir)


def test_refuses_another_major_version(data_dir: Path) -> None:
    """Data of another major version of PostgreSQL is refused with advice."""
    (data_dir / "postgres").mkdir(parents=True)
    (data_dir / "postgres" / "PG_VERSION").write_text("16\n")
    (data_dir / "nuncius.json").write_text(json.dumps({"program": "nuncius", "format": 1}))
    with pytest.raises(DataDirectoryError, match=r"PostgreSQL 16.*dump it"):
        embedded.start(data_dir)


def test_refuses_what_is_no_directory(data_dir: Path) -> None:
    """A path that cannot be a directory is refused with advice."""
    data_dir.touch()
    for path in (data_dir, data_dir / "below"):
        with pytest.raises(DataDirectoryError, match="you may write to"):
            embedded.start(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_refuses_what_it_may_not_write(data_dir: Path) -> None:
    """A directory without write permission is refused with advice."""
    data_dir.mkdir(mode=0o500)
    with pytest.raises(DataDirectoryError, match="you may write to"):
        embedded.start(data_dir)


@pytest.mark.parametrize("name", ["deep" * 30, "a,b", 'it\'s a "data" dir \\ é'])
async def test_awkward_paths(data_dir: Path, name: str) -> None:
    """Paths too long or too odd for a socket address get a short private socket directory."""
    directory = data_dir / name
    try:
        server = embedded.start(directory)
        assert await fetch(server.dsn, "select 1") == 1
        socket_dir = Path(await fetch(server.dsn, "show unix_socket_directories"))
        socket_dir = Path(str(socket_dir).strip('"'))
        assert socket_dir != directory / "postgres"
        assert socket_dir.stat().st_mode & 0o777 == 0o700
    finally:
        embedded.stop(directory)
    assert not socket_dir.exists()


def test_socket_directory_of_a_stranger(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket directory that others may enter is not used."""
    monkeypatch.setattr("tempfile.tempdir", str(data_dir.parent))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(data_dir.parent))
    directory = data_dir / ("deep" * 30)
    embedded.start(directory)
    (socket_dir,) = data_dir.parent.glob("nuncius-*")
    embedded.stop(directory)
    socket_dir.mkdir(mode=0o755)
    with pytest.raises(ServerStartError, match="another user"):
        embedded.start(directory)


NAMELESS = """
import encodings.idna, os, sys
from pathlib import Path
from nuncius.store import environment
from nuncius.store.server import embedded, postmaster
from nuncius.store.errors import StoreError

os.setgroups([])
os.setgid(54321)
os.setuid(54321)
try:
    print(environment.default_data_dir())
except StoreError as error:
    print(error)
try:
    print(embedded.start(Path(sys.argv[1])).dsn)
    embedded.stop(Path(sys.argv[1]))
    print(embedded.start(Path(sys.argv[1])).dsn)
except StoreError as error:
    print(error)
"""


def nameless(data_dir: Path, path: str) -> list[str]:
    """Starts a server, and starts it again, under a user id that no entry in /etc/passwd has."""
    data_dir.parent.chmod(0o777)
    environment = {"PATH": path}
    command = [sys.executable, "-c", NAMELESS, str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    first, *others = done.stdout.splitlines()
    assert first == "user 54321 has no home directory: say with --data-dir where the data is to be"
    return others


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_without_a_name(data_dir: Path) -> None:
    """An arbitrary user id, as container platforms assign, has a server of its own where the system has user
    namespaces."""
    allowed = ["unshare", "--map-user=1", "--map-group=1", "--", "true"]
    if subprocess.run(allowed, capture_output=True, check=False, user=54321, cwd="/").returncode != 0:
        pytest.skip("this system has no user namespaces")
    first, second = nameless(data_dir, os.environ["PATH"])
    assert first == second
    assert asyncio.run(fetch(second, "select 1")) == 1
    assert (data_dir / "postgres").stat().st_uid == 54321


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_without_a_name_or_namespaces(data_dir: Path) -> None:
    """Without user namespaces there is one sentence that says what to do, and nothing is made."""
    (said,) = nameless(data_dir, "/nowhere")
    assert said == (
        "PostgreSQL cannot make its data as user 54321, who has no name on this system: add "
        "'nuncius:x:54321:54321::/:/bin/false' to /etc/passwd, start as another user, or use --store DSN"
    )
    assert not data_dir.exists()


async def test_tcp_needs_the_password(data_dir: Path) -> None:
    """TCP is opened on request, on loopback, for those who know the password in a closed file."""
    port = free_port()
    server = embedded.start(data_dir, tcp_port=port)
    password_file = data_dir / "password"
    assert password_file.stat().st_mode & 0o777 == 0o600
    address = f"@127.0.0.1:{port}/nuncius"
    password = password_file.read_text().strip()
    assert await fetch(f"postgresql://nuncius:{password}{address}", "select 1") == 1
    with pytest.raises(asyncpg.InvalidPasswordError):
        await fetch(f"postgresql://nuncius:wrong{address}", "select 1")
    assert await fetch(server.dsn, "select 1") == 1
    assert embedded.start(data_dir, tcp_port=port).pid == server.pid


def test_tcp_is_not_added_to_a_running_server(data_dir: Path) -> None:
    """Asking for TCP while the server runs without it says that it must be stopped first."""
    embedded.start(data_dir)
    with pytest.raises(ServerStartError, match="stop it first"):
        embedded.start(data_dir, tcp_port=5499)


def test_says_why_it_did_not_start(data_dir: Path) -> None:
    """When the server does not start, the error repeats its last words."""
    embedded.start(data_dir)
    embedded.stop(data_dir)
    user_conf = data_dir / "postgres" / "user.conf"
    user_conf.write_text("max_connections = 'plenty'\n")
    user_conf.chmod(0o644)
    with pytest.raises(ServerStartError, match=r"nuncius/postgres|errors|plenty"):
        embedded.start(data_dir)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        user_conf.unlink()
        with pytest.raises(ServerStartError, match="could not create any TCP/IP sockets"):
            embedded.start(data_dir, tcp_port=taken.getsockname()[1])
