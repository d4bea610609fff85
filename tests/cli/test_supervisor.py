"""Several workers behind one port: replaced when they die, gone when they should be."""

import asyncio
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cli.commands import (
    CLOSED,
    NUNCIUS,
    busy_workers,
    connect_until_all_are_busy,
    node,
    nuncius,
    workers,
)
from nuncius.node.listeners import Listeners
from nuncius.node.node import NodeSettings
from nuncius.node.supervisor import Supervisor
from nuncius.node.worker import WorkerOrders, WorkerReport
from nuncius.store.tempdirs import Owned


def test_two_workers_share_a_port(dsn: str) -> None:
    """Connections to the one port are spread over both workers, and both serve the same messages."""
    with node("--store", dsn, "--workers=2") as started:
        assert started.ready["pid"] == started.process.pid
        assert len(workers(started)) == 2
        clients = connect_until_all_are_busy(started, 2)
        assert len(busy_workers(started)) == 2
        for client in clients:
            client.publish("news", "hello")
        assert len(clients[0].fetch("news")) == len(clients)
        for client in clients:
            client.close()
        running = workers(started)
        assert started.stop() == (0, "")
        assert not any(worker.is_running() for worker in running)


def test_a_killed_worker_is_replaced(dsn: str) -> None:
    """After `kill -9` of a worker there is another one behind the same port, and clients go on."""
    with node("--store", dsn, "--workers=2") as started:
        clients = connect_until_all_are_busy(started, 2)
        killed, other = workers(started)
        killed.kill()
        assert f"pid={killed.pid} code=-9" in started.wait_for("a worker died")
        started.wait_for("a worker runs again")
        assert {other.pid} < {worker.pid for worker in workers(started)}
        for client in clients:
            client.publish("news", "hello")
            client.close()
        assert started.stop()[0] == 0


def test_workers_do_not_outlive_their_supervisor(dsn: str) -> None:
    """After `kill -9` of the supervisor its workers end by themselves."""
    with node("--store", dsn, "--workers=2") as started:
        orphans = workers(started)
        started.stop(signal.SIGKILL)
        _, alive = psutil.wait_procs(orphans, timeout=300)
        assert alive == []


@pytest.mark.parametrize("shared", [False, True], ids=["by one", "by workers"])
def test_a_port_in_use(dsn: str, shared: bool) -> None:
    """Workers do not share a port with strangers, not even with those who would share it."""
    with socket.socket() as taken:
        if shared:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = nuncius("up", "--store", dsn, "--workers=2", f"--telesto-port={port}", *CLOSED)
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_store_that_is_not_there() -> None:
    """What keeps the first worker from starting is said once, and nothing is started again."""
    store = "postgresql://nobody@127.0.0.1:1/none"
    done = nuncius("up", "--store", store, "--workers=3", "--telesto-port=0", *CLOSED)
    assert done.returncode == 1
    assert done.stderr.startswith("nuncius: cannot connect to the store")
    assert done.stderr.count("\n") == 1


def test_ctrl_c_while_workers_start(dsn: str) -> None:
    """A signal before the workers are ready ends them all, cleanly."""
    up = subprocess.Popen(
        [
            *NUNCIUS,
            "up",
            "--store",
            dsn,
            "--workers=2",
            "--telesto-port=0",
            *CLOSED,
            "--log-level=info",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert up.stderr is not None
    try:
        assert "starting workers" in up.stderr.readline()
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=300)
    finally:
        up.kill()
        up.communicate()
    assert up.returncode == 0


def test_a_password_in_the_address_is_in_no_list_of_processes(dsn: str) -> None:
    """The workers' command lines name no store."""
    with node("--store", dsn, "--workers=2") as started:
        for worker in workers(started):
            assert worker.cmdline() == [sys.executable, "-m", "nuncius.node.worker"]


async def test_the_system_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that cannot be started has died: who waits for it learns why, and another one is tried."""
    stop = asyncio.Event()
    tries = 0

    async def refuse(*_: object, **__: object) -> None:
        nonlocal tries
        tries += 1
        if tries > 1:
            stop.set()
        raise OSError(12, "out of memory")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    report: asyncio.Future[WorkerReport] = asyncio.get_running_loop().create_future()
    supervisor = Supervisor(
        WorkerOrders(NodeSettings(""), "warning", "text"), Listeners({}, ({},)), Owned(Path(), 0)
    )
    async with asyncio.timeout(60):
        await supervisor._keep(1, report, stop)  # noqa: SLF001
    assert "out of memory" in report.result().error
    assert tries == 2


def test_a_killed_node_leaves_no_directory(dsn: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory in which workers find each other stays while one of them lives, whatever starts then,
    and is removed by the next start after `kill -9` of all."""
    parent = data_dir.parent
    monkeypatch.setenv("TMPDIR", str(parent))
    with node("--store", dsn, "--workers=2") as started:
        (made,) = parent.glob("nuncius-*")
        running = workers(started)
        with node("--store", dsn):
            assert list(made.iterdir())
        for each in running:
            each.suspend()
        started.process.kill()
        started.process.wait()
        with node("--store", dsn):
            assert list(made.iterdir())
        for each in running:
            each.kill()
        psutil.wait_procs(running, timeout=300)
    assert made.exists()
    with node("--store", dsn):
        assert list(parent.glob("nuncius-*")) == []
