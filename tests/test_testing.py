"""`nuncius.testing` gives a broker in one line and leaves nothing behind."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from nuncius import testing
from nuncius.store.server import embedded

START = """
import sys, nuncius.testing
with nuncius.testing.broker() as broker:
    print(broker.data_dir, flush=True)
    sys.stdin.read()
"""
PLUGIN = """
def test_it(nuncius_broker):
    with nuncius_broker.client() as client:
        assert client.publish("news", "hello").offset == 0
"""


def is_alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_one_line() -> None:
    """A broker is ready for clients, and afterwards its processes and its directory are gone."""
    with testing.broker() as broker:
        assert broker.data_dir is not None
        directory = broker.data_dir.parent
        server = embedded.running(broker.data_dir)
        assert server is not None
        assert server.dsn == broker.dsn
        with broker.client() as client:
            assert client.publish("news", "hello").offset == 0
        processes = [psutil.Process(broker.pid), psutil.Process(server.pid)]
    assert not any(is_alive(process) for process in processes)
    assert not directory.exists()


async def test_asyncio() -> None:
    """The same for asyncio."""
    with testing.broker() as broker:
        async with broker.async_client(name="me") as client:
            assert client.client_id > 0


def test_stop_kill_restart() -> None:
    """A broker can be stopped, killed and started again; its port and its data stay."""
    with testing.broker() as broker:
        assert broker.data_dir is not None
        url = broker.url
        with broker.client() as client:
            client.publish("news", "kept")
        broker.stop()
        broker.stop()
        assert embedded.running(broker.data_dir) is None
        broker.start()
        first = broker.pid
        broker.kill()
        assert embedded.running(broker.data_dir) is not None
        broker.start()
        broker.restart()
        assert broker.url == url
        assert broker.pid != first
        with broker.client() as client:
            assert [entry.text for entry in client.fetch("news")] == ["kept"]
        broker.kill()
    assert embedded.running(broker.data_dir) is None
    assert not broker.data_dir.exists()


def test_a_second_node(dsn: str) -> None:
    """Brokers on a store that is there already start no PostgreSQL and see the same messages."""
    with testing.broker(store=dsn) as first, testing.broker("--workers=2", store=dsn) as second:
        assert first.data_dir is None
        assert first.dsn == second.dsn == dsn
        with first.client() as one, second.client() as other:
            one.publish("news", "hello")
            assert other.fetch("news", wait=10)[0].text == "hello"


def test_a_broker_that_does_not_start() -> None:
    """What the node said is in the exception, and nothing stays behind."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with (
        pytest.raises(testing.BrokerDidNotStart, match="cannot connect to the store"),
        testing.broker(store="postgresql://nobody@127.0.0.1:1/none"),
    ):
        pass
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_a_failing_test_leaves_nothing_behind() -> None:
    """An exception inside the block cleans up as well."""
    made: list[testing.Broker] = []

    def fail() -> None:
        with testing.broker() as broker:
            made.append(broker)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert not made[0].log.parent.exists()


@pytest.mark.parametrize("kill_node_first", [False, True])
def test_a_killed_test_leaves_nothing_behind(kill_node_first: bool) -> None:
    """When the test process is killed, node and PostgreSQL end and the directory goes."""
    process = subprocess.Popen(
        [sys.executable, "-c", START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    directory = Path(process.stdout.readline().strip())
    server = embedded.running(directory)
    assert server is not None
    left = [*psutil.Process(process.pid).children(), psutil.Process(server.pid)]
    if kill_node_first:
        (node,) = [child for child in left if "up" in child.cmdline()]
        node.send_signal(signal.SIGKILL)
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(left, timeout=300)
    assert alive == []
    assert not directory.parent.exists()


def test_fixture(tmp_path: Path) -> None:
    """Pytest gets a fixture from the plugin."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["nuncius.testing"]\n')
    (tmp_path / "test_it.py").write_text(PLUGIN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
