"""The benchmark of the core measures what it says, on a small scale."""

import asyncio
import json
from pathlib import Path

import pytest

from bench.command import bench
from nuncius.bench import core
from nuncius.bench.load import core as load
from nuncius.bench.result import Goal, Result
from telesto_thread import node_in_a_thread

# What a benchmark starts is measured elsewhere: doors by their tests, loads below.
pytestmark = pytest.mark.usefixtures("unmeasured")
FIGURES = {
    "engine_limit",
    "raw_append",
    "inprocess_publish_256",
    "publish_1",
    "publish_256",
    "publish_1024",
    "publish_batch",
    "consume",
    "queue_put_take",
    "queue_put_take_held",
    "publish_256_held",
    "latency_p50_ms",
    "latency_p99_ms",
    "rss_idle_mb",
    "rss_backlog_mb",
}
SMALL = {"HELD_MESSAGES": 100, "BACKLOG": 2000, "ROUNDS": 1, "HELD_ROUNDS": 1}
AMOUNTS = {
    "publish_1": 0.1,
    "publish_256": 0.1,
    "publish_1024": 0.1,
    "publish_batch": 0.1,
    "consume": 1000,
    "put_take": 300,
    "latency": 0.2,
    "backlog": 2000,
}


def test_every_figure_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run writes all figures to the file and shows them in a table."""
    for name, value in SMALL.items():
        monkeypatch.setattr(core, name, value)
    document, shown = bench("core", tmp_path / "core.json", "--seconds=0.2")
    assert document["figures"].keys() >= FIGURES
    assert all(value > 0 for name, value in document["figures"].items() if name in FIGURES)
    assert "raw_append / engine_limit" in shown


def test_the_loads(dsn: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each load does what it says, and prints its figures."""
    assert AMOUNTS.keys() == load.LOADS.keys()
    with node_in_a_thread(dsn) as port:
        for name, amount in AMOUNTS.items():
            asyncio.run(load.main(name, f"nuncius://127.0.0.1:{port}", amount))
            assert min(json.loads(capsys.readouterr().out).values()) > 0


def test_goals() -> None:
    """A goal compares a figure, or the ratio of two, with what is wanted; without figures it is open."""
    ratio = Goal("a", "b", at_least=0.5)
    assert ratio.reached({"a": 1.0, "b": 2.0}) is True
    assert ratio.reached({"a": 0.9, "b": 2.0}) is False
    assert ratio.reached({"a": 1.0}) is None
    assert Goal("a", at_most=2).reached({"a": 2.1}) is False


def test_the_goals_are_about_figures_there_are(tmp_path: Path) -> None:
    """Every goal of the core names figures that a run has."""
    known = FIGURES | {"direct_call_ms", "publish_1_ms", "rss_backlog_growth_mb"}
    assert {goal.name for goal in core.GOALS} <= known
    assert {goal.over for goal in core.GOALS} - {None} <= known
    Result("empty", core.GOALS).write(tmp_path / "empty.json")
    assert json.loads((tmp_path / "empty.json").read_text())["figures"] == {}
