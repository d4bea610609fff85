"""`bench zeromq`: the ZeroMQ door, with clients in a separate process."""

import asyncio
import json
import statistics
import sys
import tempfile
from pathlib import Path

import asyncpg
import uvloop
from rich.console import Console
from rich.progress import Progress

from nuncius.bench.limits import RAW_ROWS, appends
from nuncius.bench.load.zeromq import CLIENTS, LOADS
from nuncius.bench.nodes import ports_of_node
from nuncius.bench.result import Goal, Result, progress
from nuncius.store.server import embedded

GOALS = (
    Goal(f"put_{CLIENTS}", "raw_append", at_least=0.05),
    Goal("roundtrip_ms_p50", at_most=2),
)
ROUNDS = 3


def bench(console: Console, seconds: float) -> Result:
    result = Result("zeromq", GOALS)
    steps = ROUNDS * len(LOADS)
    with progress(console, steps) as bar, tempfile.TemporaryDirectory(prefix="nun-") as parent:
        data_dir = Path(parent) / "data"
        try:
            result.figures = uvloop.run(_run(bar, data_dir, seconds))
        finally:
            embedded.stop(data_dir)
    return result


async def _run(bar: Progress, data_dir: Path, seconds: float) -> dict[str, float]:
    """Return the median of several rounds for each figure, because the speed of a machine varies."""
    taken: dict[str, list[float]] = {}
    dsn = embedded.start(data_dir).dsn
    async with ports_of_node(data_dir, "zeromq") as (ports, _):
        url = f"tcp://127.0.0.1:{ports['zeromq']}"
        for _ in range(ROUNDS):
            for name in LOADS:
                bar.update(bar.tasks[0].id, description=name)
                figures = await _load(name, url, seconds / ROUNDS)
                figures["raw_append"] = await _raw_append(dsn, seconds / ROUNDS / 2)
                for figure, value in figures.items():
                    taken.setdefault(figure, []).append(value)
                bar.advance(bar.tasks[0].id)
    return {figure: statistics.median(values) for figure, values in taken.items()}


async def _load(name: str, url: str, seconds: float) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nuncius.bench.load.zeromq", name, url, str(seconds)),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"load {name} failed")
    figures: dict[str, float] = json.loads(out)
    return figures


async def _raw_append(dsn: str, seconds: float) -> float:
    connection = await asyncpg.connect(dsn)
    try:
        return await appends(connection, "bench-raw", RAW_ROWS, seconds)
    finally:
        await connection.close()
