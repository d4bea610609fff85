"""The load of the HTTP benchmark and its figures."""

import asyncio
import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from doors.http.peer import node_in_a_thread
from nuncius.bench import http, http_wrk
from nuncius.bench.load import http as http_load
from nuncius.bench.load.http import compare, fill, generate, generator, new_topic, produce
from nuncius.bench.load.http_sockets import call, request, run, times

WRK = shutil.which("wrk")
GOOD = {"answered": 1_000_000, "seconds": 1.0, "refused": 0, "connect": 0, "read": 0, "write": 0, "late": 0}

needs_wrk = pytest.mark.skipif(WRK is None, reason="needs wrk")

# What a benchmark starts is measured elsewhere: doors by their tests, loads below.
pytestmark = pytest.mark.usefixtures("unmeasured")


@pytest.fixture
def no_wrk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def pretend(folder: Path, script: str) -> str:
    """A program that answers for wrk."""
    program = folder / "wrk"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def few_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_load, "READ", 1024)
    monkeypatch.setattr(http_load, "STREAM", 1000)


@pytest.mark.usefixtures("no_wrk")
def test_the_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run measures every figure, and the engine's own beside them; it says where the load came from."""
    monkeypatch.setattr(http, "ROUNDS", 1)
    monkeypatch.setattr(http, "STORED", 1000)
    monkeypatch.setattr(http, "PARTITIONS", (1, 16))
    result = http.bench(Console(file=io.StringIO()), 0.1)
    assert result.figures.keys() >= {
        *("produce_64", "consume_64", "produce_batch", "sse_deliveries", "raw_append"),
        *("partitions_growth", "backlog_growth", "balanced_produce_64", "generator_share"),
    }
    assert min(result.figures.values()) > 0
    result.show(Console(file=(shown := io.StringIO())))
    assert "generator: own" in shown.getvalue()
    result.write(file := tmp_path / "figures.json")
    assert json.loads(file.read_text())["machine"]["generator"] == "own"


@pytest.mark.usefixtures("no_wrk")
def test_the_loads(dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each load does what it says, with a generator of our own where there is no other, and prints it."""
    few_messages(monkeypatch)
    assert generator() == "own"
    with node_in_a_thread(dsn) as port:
        asyncio.run(http_load.main("produce", str(port), "0.2"))
        produced = json.loads(capsys.readouterr().out)
        assert produced["produce_64"] > 0
        assert 0 < produced["generator_share"] < 1
        assert asyncio.run(http_load.consume(port, 0.2))["consume_64"] > 0
        assert asyncio.run(http_load.produce_batch(port, 0.2))["produce_batch"] > 0
        assert asyncio.run(http_load.events(port, 1))["sse_deliveries"] > 0
        topic = new_topic()
        asyncio.run(fill(port, topic, 1000))
        assert asyncio.run(http_load.cost(port, 0.2, topic))["cost"] > 0


@needs_wrk
def test_the_loads_of_wrk(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where wrk is installed it is the generator, and what it counts agrees with the store."""
    few_messages(monkeypatch)
    assert generator() == "wrk"
    with node_in_a_thread(dsn) as port:
        produced = asyncio.run(produce(port, 0.2))
        assert produced["produce_64"] > 0
        assert 0 < produced["generator_share"] < 1
        assert asyncio.run(http_load.consume(port, 0.2))["consume_64"] > 0
        assert asyncio.run(http_load.produce_batch(port, 0.2))["produce_batch"] > 0


@needs_wrk
def test_a_wrong_answer_to_wrk_is_an_error(dsn: str) -> None:
    """A load of wrk's that is refused measures nothing either."""
    with node_in_a_thread(dsn) as port, pytest.raises(RuntimeError, match=r"[1-9]\d* refused"):
        asyncio.run(generate(port, [request("POST", "/producer/produce", {})], 2, 0.1))


def test_a_wrk_that_fails(tmp_path: Path) -> None:
    """What wrk says when it cannot run is the error."""
    wrk = pretend(tmp_path, "echo no such script; exit 1")
    with pytest.raises(RuntimeError, match="no such script"):
        asyncio.run(http_wrk.run(wrk, 1, [b""], 1, 1))


def test_errors_that_wrk_met(tmp_path: Path) -> None:
    """Every kind of error counts, and is named."""
    wrk = pretend(tmp_path, f"echo its report; echo '{json.dumps(GOOD | {'refused': 3, 'read': 1})}'")
    with pytest.raises(RuntimeError, match="3 refused, 1 read"):
        asyncio.run(http_wrk.run(wrk, 1, [b""], 1, 1))


@pytest.mark.usefixtures("no_wrk")
def test_a_wrk_that_counts_wrong(dsn: str, tmp_path: Path) -> None:
    """Its count is compared with the store, too."""
    pretend(tmp_path, f"echo '{json.dumps(GOOD)}'")
    with node_in_a_thread(dsn) as port, pytest.raises(RuntimeError, match="1000000 messages were confirmed"):
        asyncio.run(produce(port, 0.1))


def test_a_count_that_the_store_does_not_know() -> None:
    """Answers for messages that are not in the store are no figure, nor are messages that nobody sent."""
    compare(100, 103, under_way=64)
    for found in (99, 165):
        with pytest.raises(RuntimeError, match=f"100 messages .* tells of {found}"):
            compare(100, found, under_way=64)


def test_a_wrong_answer_is_an_error(dsn: str) -> None:
    """A load that is refused measures nothing."""
    with node_in_a_thread(dsn) as port:
        with pytest.raises(RuntimeError, match="400"):
            asyncio.run(run(port, [times(3, request("POST", "/producer/produce", {}))]))
        with pytest.raises(RuntimeError, match="404"):
            asyncio.run(call(port, "GET", "/v1/nothing"))
