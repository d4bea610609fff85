"""`bench stomp`: receipts, fan-out, queues with acknowledgement, bursts, and a slow subscriber."""

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
from nuncius.bench.load.stomp import BURST
from nuncius.bench.nodes import ports_of_node
from nuncius.bench.result import Goal, Result, progress
from nuncius.store.server import embedded

GOALS = (
    Goal("send_receipt_256", "raw_append", at_least=0.12),
    Goal("fanout", at_least=60_000),
    Goal("slow_subscriber", at_least=0.9),
    Goal("rss_slow_growth_mb", at_most=64),
)
STEPS = 6
FANOUT_MESSAGES = 400_000  # deliveries for each second of the run
QUEUE_MESSAGES = 2_000
ROUNDS = 3


class Run:
    def __init__(self, seconds: float, bar: Progress, figures: dict[str, float]) -> None:
        self.seconds = seconds
        self.figures = figures
        self._bar = bar

    def step(self, name: str) -> None:
        task = self._bar.tasks[0]
        self._bar.update(task.id, description=name, advance=0 if task.description == "starting" else 1)

    async def load(self, name: str, port: int, amount: float) -> dict[str, float]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "nuncius.bench.load.stomp", name, str(port), str(amount)),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"load {name} failed")
        figures: dict[str, float] = json.loads(out)
        return figures


def bench(console: Console, seconds: float) -> Result:
    result = Result("stomp", GOALS)
    with progress(console, STEPS) as bar, tempfile.TemporaryDirectory(prefix="nun-") as parent:
        data_dir = Path(parent) / "data"
        try:
            uvloop.run(_run(Run(seconds, bar, result.figures), data_dir))
        finally:
            embedded.stop(data_dir)
    return result


async def _run(run: Run, data_dir: Path) -> None:
    async with ports_of_node(data_dir, "stomp") as (ports, process):
        port = ports["stomp"]
        server = embedded.running(data_dir)
        assert server is not None
        run.step("raw_append")
        connection = await asyncpg.connect(server.dsn)
        raw = [await appends(connection, "bench-raw", RAW_ROWS, run.seconds / 2)]
        run.step("send_receipt_256")
        run.figures |= await run.load("send_receipt", port, run.seconds)
        raw.append(await appends(connection, "bench-raw", RAW_ROWS, run.seconds / 2))
        run.figures["raw_append"] = statistics.median(raw)
        await connection.close()
        run.step("fanout")
        messages = run.seconds * FANOUT_MESSAGES / 50
        await run.load("fanout", port, messages / 4)
        normal, slow = [], []
        before = process.memory_info().rss
        for _ in range(ROUNDS):  # in turns, so that noise affects both
            normal.append((await run.load("fanout", port, messages))["fanout"])
            slow.append((await run.load("slow", port, messages))["fanout"])
        run.figures["fanout"] = statistics.median(normal)
        # Deliveries to the subscribers that read: 49 of 50.
        run.figures["slow_subscriber"] = statistics.median(slow) / statistics.median(normal) * 50 / 49
        run.figures["rss_slow_growth_mb"] = (process.memory_info().rss - before) / 2**20
        run.step("queue")
        run.figures |= await run.load("queue", port, run.seconds * QUEUE_MESSAGES)
        run.step("connect_burst")
        run.figures |= await run.load("burst", port, BURST)
        run.step("done")
