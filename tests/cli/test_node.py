"""`nuncius node`: roles by themselves and together, stores of brokers, and mistakes."""

import resource
import socket
from pathlib import Path

import pytest

from cli.commands import nuncius
from cluster.http_caller import Caller
from cluster.processes import Process
from nuncius.node.node import NodeSettings, within_limits


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--role=king",), "'king' is not one of"),
        (("--store=postgresql://x", "--data-dir=y"), "give --data-dir or --store, not both"),
        (("--own-store=postgresql://x", "--own-data-dir=y"), "give --own-data-dir or --own-store, not both"),
        (("--role=writer", "--own-data-dir=y"), "only a broker has a store of its own"),
        (("--data-dir=y", "--own-data-dir=y"), "is the common store; a broker's own is another"),
        (("--http-port=off",), "a node of a cluster is known by this port"),
        (("--port=x",), "'x' is neither a port nor 'off'"),
        (("--allow-origin=x",), "write it like https://example.org"),
        (("--queue-dialect=x",), "'x' is not one of 'auto', 'a1', 'a2'"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], expected: str) -> None:
    """Options that make no sense are refused with a sentence that says why."""
    done = nuncius("node", *arguments)
    assert done.returncode == 2
    assert expected in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("limits", "granted", "connections"),
    [
        ((256, 40_000), True, 10_000),
        ((256, resource.RLIM_INFINITY), True, 10_000),
        ((256, resource.RLIM_INFINITY), False, 128),
        ((256, 1000), True, 500),
    ],
)
def test_open_files(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], granted: bool, connections: int
) -> None:
    """A node opens as many files as it may, and no door takes so many connections that none is left for the
    store."""
    asked: list[tuple[int, int]] = []

    def set_limit(_: int, wanted: tuple[int, int]) -> None:
        asked.append(wanted)
        if not granted:
            raise ValueError("no")

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    assert within_limits(NodeSettings("dsn")).max_connections == connections
    assert asked == [(limits[1], limits[1])]


def test_ports_in_use(dsn: str) -> None:
    """A port that somebody has is named, whichever it is for."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for arguments in (
            ("--role=balancer", f"--port={port}"),
            ("--role=broker", "--port=0", f"--link-port={port}"),
        ):
            done = nuncius("node", f"--store={dsn}", *arguments)
            assert done.returncode == 1
            assert f"port {port} on 127.0.0.1 is in use" in done.stderr


async def test_together(data_dir: Path, tmp_path: Path) -> None:
    """A balancer that is also a manager and a broker with an embedded store of its own beside the common one;
    a second node on the same common store; and all of it is there after a restart."""
    own = data_dir.parent / "own"
    common = f"--data-dir={data_dir}"
    roles = ("--role=balancer", "--role=writer", "--role=broker")
    with (
        Process(tmp_path / "one.log", *roles, common, f"--own-data-dir={own}") as one,
        Process(tmp_path / "two.log", "--role=reader", common, "--advertise=localhost") as two,
    ):
        one.start()
        two.start()
        caller = Caller(one.port)
        producer = (await caller.call("POST", "/producer/register", {"topic": "A"}))[1]["producer_id"]
        consumer = (await caller.call("POST", "/consumer/register", {"topic": "A"}))[1]["consumer_id"]
        message = {"topic": "A", "producer_id": producer, "message": "hello"}
        assert await caller.call("POST", "/producer/produce", message) == (200, {"status": "success"})
        assert (own / "postgres").exists()
        await caller.close()
        one.kill()
        one.start()
        fields = {"topic": "A", "consumer_id": consumer}
        status, answer = await caller.call("GET", "/consumer/consume", fields)
        assert (status, answer["message"]) == (200, "hello")
        assert (await caller.call("GET", "/size", fields))[1]["size"] == 0
        await caller.close()


async def test_a_dialect_of_a_cluster(data_dir: Path, tmp_path: Path) -> None:
    """Manager and balancer answer in the dialect that they were told, however a request is spelt."""
    roles = ("--role=balancer", "--role=writer", "--role=reader", "--role=broker")
    with Process(tmp_path / "log", *roles, f"--data-dir={data_dir}", "--queue-dialect=a2") as one:
        one.start()
        caller = Caller(one.port)
        producer = (await caller.call("POST", "/producer/register", {"topic": "A"}))[1]["producer_id"]
        message = {"topic": "A", "producer_id": producer, "message": "hello"}
        _, answer = await caller.call("POST", "/producer/produce", message)
        assert answer["message"] == f"Producer ID {producer} published in topic A"
        status, answer = await caller.call("POST", "/topics", {"name": "A"})
        assert (status, answer["message"]) == (400, "Write Manager Failed: Topic already exists")
        await caller.close()
