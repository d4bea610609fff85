"""The load of the Telesto evaluation, its figures and its trace files."""

import asyncio
import io
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from bench.command import bench
from nuncius.bench import telesto
from nuncius.bench.load.telesto import LoadClient, LoadSettings, Outcome, TelestoLoad
from nuncius.bench.telesto import figures_of, phase_shares
from nuncius.doors.telesto import table
from nuncius.doors.telesto.codec import Codec
from nuncius.doors.telesto.table import Dialect
from nuncius.doors.telesto.trace import NODE_COLUMNS, NodeTrace
from telesto_thread import node_in_a_thread

# What a benchmark starts is measured elsewhere: doors by their tests, loads below.
pytestmark = pytest.mark.usefixtures("unmeasured")

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


def test_the_figures_and_the_traces(tmp_path: Path) -> None:
    """A run measures every figure, loses and doubles nothing, and keeps both sides' traces."""
    traces = tmp_path / "traces"
    options = ("--clients=18", "--seconds=1", f"--trace={traces}")
    document, _ = bench("telesto", tmp_path / "figures.json", *options)
    assert document["machine"]["cores"]
    figures = document["figures"]
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


def test_a_sweep_names_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A series has the figures of each of its runs, and their traces, told apart by what was varied."""
    monkeypatch.setitem(telesto.SWEEPS, "workers", (1, 2))
    traces = tmp_path / "traces"
    figures = telesto.bench(Console(file=io.StringIO()), 0.5, 9, "workers", traces).figures
    for workers in (1, 2):
        assert f"messages_per_s_workers_{workers}" in figures
        assert len(list((traces / f"workers_{workers}").glob("client-*.parquet"))) == 1
        assert len(list((traces / f"workers_{workers}").glob("node-*.parquet"))) == workers


def test_the_load(dsn: str, tmp_path: Path) -> None:
    """Clients of all kinds send and read until the time is over, and then what is left."""
    with node_in_a_thread(dsn) as port:
        outcome = asyncio.run(TelestoLoad(LoadSettings([("127.0.0.1", port)], 9, 0.3, str(tmp_path))).main())
    assert outcome.messages > 0
    assert outcome.packets > outcome.messages
    assert (outcome.lost, outcome.doubled) == (0, 0)


class Echo(asyncio.Transport):
    """A node that has an answer to everything: Pong."""

    def __init__(self, connection: LoadClient) -> None:
        super().__init__()
        self._connection = connection

    def write(self, data: Any) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(self._connection.data_received, Codec(Dialect.DEPLOYED).encode(table.Pong(1)))


def test_a_clients_own_time(tmp_path: Path) -> None:
    """A row says how long its client took since its own last answer, whatever others did meanwhile."""
    run = TelestoLoad(LoadSettings([], 2, 1.0, str(tmp_path)))

    async def ask() -> None:
        clients = [LoadClient(run), LoadClient(run)]
        for client in clients:
            client.connection_made(Echo(client))
        for number in (0, 1, 0):
            await clients[number].ask(table.Ping)

    asyncio.run(ask())
    run.close()
    (file,) = tmp_path.glob("client-*.parquet")
    first, second, third = pq.read_table(file).to_pylist()
    assert first["waiting"] == second["waiting"] == 0
    assert third["waiting"] > second["response_time"]


def test_figures_by_hand() -> None:
    """Rates are per second of the measured time; percentiles are of response times."""
    outcome = Outcome.of(50, 2.0, [n * 1_000_000 for n in range(1, 101)], 0, 0)
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
