"""`bench telesto`: the authors' evaluation, with clients, node and PostgreSQL on this machine."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from nuncius.bench.harness import BenchRun, measure, run_load
from nuncius.bench.load.telesto import LoadSettings, Outcome
from nuncius.bench.nodes import node
from nuncius.bench.result import Goal, Result
from nuncius.store.server import embedded

GOALS = (
    Goal("messages_per_s", at_least=5000),
    Goal("response_mean_ms", at_most=15),
    Goal("lost", at_most=0),
    Goal("doubled", at_most=0),
)
# The authors reported 945 messages/s and 2,554 packets/s at 96 clients.
SWEEPS: dict[str, Sequence[int]] = {
    "clients": (8, 32, 64, 96, 160, 224),
    "workers": (1, 2, 4),
    "nodes": (1, 2, 4),
}
PHASES = {"waiting": "waiting", "parsing": "parsing", "database": "database", "response": "responding"}


class Setup(msgspec.Struct, frozen=True):
    """The settings of one run."""

    clients: int
    workers: int = 1
    nodes: int = 1


def bench(console: Console, seconds: float, clients: int, sweep: str | None, trace: Path | None) -> Result:
    setups = [Setup(clients)]
    if sweep is not None:
        setups = [msgspec.structs.replace(setups[0], **{sweep: value}) for value in SWEEPS[sweep]]
    result = Result("telesto", GOALS if sweep is None else ())

    async def work(run: BenchRun) -> None:
        for setup in setups:
            suffix = "" if sweep is None else f"_{sweep}_{getattr(setup, sweep)}"
            run.step(f"{setup.clients} clients{suffix}")
            traces = (trace or run.directory / "trace") / (suffix.strip("_") or "run")
            outcome = await _measure(run.directory / f"data{suffix}", setup, seconds, traces)
            figures = {**figures_of(outcome), **phase_shares(traces)}
            run.step(f"{setup.clients} clients{suffix}, without traces")
            untraced = await _measure(run.directory / f"plain{suffix}", setup, max(1.0, seconds / 4), None)
            figures["messages_per_s_untraced"] = untraced.messages / untraced.seconds
            run.note({f"{name}{suffix}": value for name, value in figures.items()})

    return measure(console, result, seconds, 2 * len(setups), work)


async def _measure(data_dir: Path, setup: Setup, seconds: float, trace: Path | None) -> Outcome:
    options = [] if trace is None else ["--trace", str(trace)]
    try:
        async with _nodes(data_dir, setup, options) as addresses:
            settings = LoadSettings(addresses, setup.clients, seconds, "" if trace is None else str(trace))
            out = await run_load("telesto", msgspec.json.encode(settings).decode())
            return msgspec.json.decode(out, type=Outcome)
    finally:
        embedded.stop(data_dir)


@contextlib.asynccontextmanager
async def _nodes(
    data_dir: Path, setup: Setup, options: Sequence[str]
) -> AsyncIterator[list[tuple[str, int]]]:
    async with contextlib.AsyncExitStack() as stack:
        addresses = []
        for _ in range(setup.nodes):
            started = node(data_dir, "telesto", options=[f"--workers={setup.workers}", *options])
            ports, _ = await stack.enter_async_context(started)
            addresses.append(("127.0.0.1", ports["telesto"]))
        yield addresses


def figures_of(outcome: Outcome) -> dict[str, float]:
    return {
        "messages_per_s": outcome.messages / outcome.seconds,
        "packets_per_s": outcome.packets / outcome.seconds,
        "response_mean_ms": outcome.response_mean_ms,
        "response_p50_ms": outcome.response_p50_ms,
        "response_p99_ms": outcome.response_p99_ms,
        "lost": outcome.lost,
        "doubled": outcome.doubled,
    }


def phase_shares(trace: Path) -> dict[str, float]:
    """Return the share of each phase in a request's time in the node."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    sums = dict.fromkeys(PHASES, 0)
    for file in trace.glob("node-*.parquet"):
        rows = pq.read_table(file)
        for phase in PHASES:
            sums[phase] += pc.sum(rows[phase]).as_py() or 0
    total = sum(sums.values()) or 1
    return {PHASES[phase]: value / total for phase, value in sums.items()}
