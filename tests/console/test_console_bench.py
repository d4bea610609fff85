"""`bench console` runs, and its figures are those that are judged."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from nuncius.bench import console


def test_the_figures_of_bench_console(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A short run on a store with little in it has every figure that a goal is about."""
    monkeypatch.setattr(console, "ROUNDS", 1)
    monkeypatch.setattr(console, "STARTS", 1)
    monkeypatch.setattr(console, "PLACES", 100)
    result = console.bench(Console(quiet=True), 0.2, messages=5000)
    result.write(tmp_path / "figures.json")
    figures = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert set(figures) == {
        "start_seconds",
        "page_ms_p50",
        "page_ms_p95",
        "publish_without",
        "publish_with_console",
    }
    assert all(value > 0 for value in figures.values())
    assert all(goal.value(figures) is not None for goal in console.GOALS)
