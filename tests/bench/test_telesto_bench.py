"""The load of the Telesto evaluation, its figures and its trace files."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from nuncius.bench.telesto import figures_of, phase_shares
from nuncius.bench.telesto_load import Outcome
from nuncius.doors.telesto.trace import NODE_COLUMNS, NodeTrace

FIGURES = {
    "messages_per_s",
    "packets_per_s",
    "response_mean_ms",
    "response_p50_ms",
    "response_p99_ms",
    "waiting",
    "parsing",
    "database",
    "responding",
}


def bench(tmp_path: Path, *options: str) -> dict[str, float]:
    file = tmp_path / "figures.json"
    subprocess.run(
        [sys.executable, "-m", "nuncius", "bench", "telesto", f"--json={file}", *options],
        check=True,
        timeout=100,
        capture_output=True,
    )
    document = json.loads(file.read_text())
    assert document["name"] == "telesto"
    assert document["machine"]["cores"]
    figures: dict[str, float] = document["figures"]
    return figures


def test_the_figures_and_the_traces(tmp_path: Path) -> None:
    """A run measures every figure, loses and doubles nothing, and keeps both sides' traces."""
    traces = tmp_path / "traces"
    figures = bench(tmp_path, "--clients=18", "--seconds=1", f"--trace={traces}")
    assert figures.keys() >= FIGURES
    assert figures["lost"] == figures["doubled"] == 0
    assert figures["messages_per_s"] > 0
    assert sum(figures[phase] for phase in ("waiting", "parsing", "database", "responding")) == pytest.approx(
        1
    )
    (client,) = (traces / "run").glob("client-*.parquet")
    columns = ["epoch_ms", "waiting", "sent_method", "response_time", "received_method"]
    assert pq.read_schema(client).names == columns
    (node,) = (traces / "run").glob("node-*.parquet")
    assert pq.read_schema(node).names == list(NODE_COLUMNS)
    assert pq.read_table(node).num_rows == pq.read_table(client).num_rows


def test_a_sweep_names_each_run(tmp_path: Path) -> None:
    """A series has the figures of each of its runs, and their traces, told apart by what was varied."""
    traces = tmp_path / "traces"
    figures = bench(tmp_path, "--clients=9", "--seconds=0.5", "--sweep=workers", f"--trace={traces}")
    for workers in (1, 2, 4):
        assert f"messages_per_s_workers_{workers}" in figures
        assert len(list((traces / f"workers_{workers}").glob("client-*.parquet"))) == 1
        assert len(list((traces / f"workers_{workers}").glob("node-*.parquet"))) == workers


def test_figures_by_hand() -> None:
    """Rates are per second of the measured time; percentiles are of response times."""
    outcome = Outcome(50, 100, 2.0, [float(n) for n in range(1, 101)], 0, 0)
    figures = figures_of(outcome)
    assert figures["messages_per_s"] == 25
    assert figures["packets_per_s"] == 50
    assert figures["response_mean_ms"] == 50.5
    assert figures["response_p50_ms"] == pytest.approx(50.5)


def test_phases_by_hand(tmp_path: Path) -> None:
    """A phase's share is its part of the time that requests spent in the node."""
    trace = NodeTrace(tmp_path)
    trace.add(1000, 100, 1200, 1700, 1900)  # waited 100, parsed 100, stored 500, answered 200
    trace.add(1000, 100, 1100, 1100, 1100)  # parsed only
    trace.close()
    assert phase_shares(tmp_path) == {
        "waiting": 0.1,
        "parsing": 0.2,
        "database": 0.5,
        "responding": 0.2,
    }
