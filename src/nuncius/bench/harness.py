"""The frame of every benchmark: a directory with a store, progress, loads in other processes, figures."""

import asyncio
import json
import statistics
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.progress import Progress

from nuncius.bench.limits import RAW_ROWS, appends
from nuncius.bench.result import Result, progress
from nuncius.store.server import embedded


class BenchRun:
    """One run of a benchmark: its directory, and the figures so far."""

    def __init__(self, result: Result, seconds: float, directory: Path, bar: Progress) -> None:
        self.seconds = seconds
        self.directory = directory
        self.data_dir = directory / "data"
        """The directory of the embedded server that most benchmarks use."""
        self.figures = result.figures
        self._bar = bar
        self._taken: dict[str, list[float]] = {}

    def step(self, name: str) -> None:
        """Show what is measured from now on. The step before is done."""
        task = self._bar.tasks[0]
        self._bar.update(task.id, description=name, advance=0 if task.description == "starting" else 1)

    def note(self, figures: dict[str, float]) -> None:
        """Add measurements. A figure that is measured several times is the median, because the speed of a
        machine varies."""
        for name, value in figures.items():
            taken = self._taken.setdefault(name, [])
            taken.append(value)
            self.figures[name] = statistics.median(taken)

    async def load(self, module: str, *arguments: object) -> dict[str, float]:
        """Run a load in a process of its own and return its figures."""
        figures: dict[str, float] = json.loads(await run_load(module, *arguments))
        return figures

    async def raw_append(self, dsn: str, seconds: float) -> None:
        """Measure, once more, what PostgreSQL does without a broker."""
        self.note({"raw_append": await appends(dsn, "bench-raw", RAW_ROWS, seconds)})


async def run_load(module: str, *arguments: object) -> bytes:
    """Run a module of `nuncius.bench.load` in a process of its own and return its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"nuncius.bench.load.{module}", *map(str, arguments)), stdout=PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"load {module} failed")
    return out


def measure(
    console: Console,
    result: Result,
    seconds: float,
    steps: int,
    work: Callable[[BenchRun], Coroutine[Any, Any, None]],
) -> Result:
    """Run a benchmark of that many steps in a temporary directory, and stop its embedded server."""
    with progress(console, steps) as bar, tempfile.TemporaryDirectory(prefix="nun-") as parent:
        run = BenchRun(result, seconds, Path(parent), bar)
        try:
            uvloop.run(work(run))
        finally:
            embedded.stop(run.data_dir)
        bar.update(bar.tasks[0].id, completed=steps)
    return result
