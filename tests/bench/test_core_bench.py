"""The benchmark of the core measures what it says, on a small scale."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nuncius.bench import core
from nuncius.bench.result import Goal, Result

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
SMALL = """
import sys
from nuncius.bench import core
core.HELD_MESSAGES, core.BACKLOG = 2000, 5000
from nuncius.cli import main
main()
"""


@pytest.mark.timeout(240)
def test_every_figure_is_measured(tmp_path: Path) -> None:
    """A run writes all figures to the file and shows them in a table."""
    file = tmp_path / "core.json"
    done = subprocess.run(
        [sys.executable, "-c", SMALL, "bench", "core", f"--json={file}", "--seconds=0.3"],
        check=True,
        timeout=200,
        capture_output=True,
        text=True,
    )
    document = json.loads(file.read_text())
    assert document["name"] == "core"
    assert document["figures"].keys() >= FIGURES
    assert all(value > 0 for name, value in document["figures"].items() if name in FIGURES)
    assert "raw_append / engine_limit" in done.stdout


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
