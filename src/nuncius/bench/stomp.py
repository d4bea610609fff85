"""`bench stomp`: receipts, fan-out, queues with acknowledgement, bursts, and a slow subscriber."""

import statistics

from rich.console import Console

from nuncius.bench.harness import BenchRun, measure
from nuncius.bench.load.stomp import BURST
from nuncius.bench.nodes import node
from nuncius.bench.result import Goal, Result
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


def bench(console: Console, seconds: float) -> Result:
    return measure(console, Result("stomp", GOALS), seconds, STEPS, _run)


async def _run(run: BenchRun) -> None:
    async with node(run.data_dir, "stomp") as (ports, process):
        port = ports["stomp"]
        server = embedded.running(run.data_dir)
        assert server is not None
        run.step("raw_append")
        await run.raw_append(server.dsn, run.seconds / 2)
        run.step("send_receipt_256")
        run.note(await run.load("stomp", "send_receipt", port, run.seconds))
        await run.raw_append(server.dsn, run.seconds / 2)
        run.step("fanout")
        messages = run.seconds * FANOUT_MESSAGES / 50
        await run.load("stomp", "fanout", port, messages / 4)
        normal, slow = [], []
        before = process.memory_info().rss
        for _ in range(ROUNDS):  # in turns, so that noise affects both
            normal.append((await run.load("stomp", "fanout", port, messages))["fanout"])
            slow.append((await run.load("stomp", "slow", port, messages))["fanout"])
        run.figures["fanout"] = statistics.median(normal)
        # Deliveries to the subscribers that read: 49 of 50.
        run.figures["slow_subscriber"] = statistics.median(slow) / statistics.median(normal) * 50 / 49
        run.figures["rss_slow_growth_mb"] = (process.memory_info().rss - before) / 2**20
        run.step("queue")
        run.note(await run.load("stomp", "queue", port, run.seconds * QUEUE_MESSAGES))
        run.step("connect_burst")
        run.note(await run.load("stomp", "burst", port, BURST))
