"""`bench zeromq`: the ZeroMQ door, with clients in a separate process."""

from rich.console import Console

from nuncius.bench.harness import BenchRun, measure
from nuncius.bench.load.zeromq import CLIENTS, LOADS
from nuncius.bench.nodes import node
from nuncius.bench.result import Goal, Result
from nuncius.store.server import embedded

GOALS = (
    Goal(f"put_{CLIENTS}", "raw_append", at_least=0.05),
    Goal("roundtrip_ms_p50", at_most=2),
)
ROUNDS = 3


def bench(console: Console, seconds: float) -> Result:
    return measure(console, Result("zeromq", GOALS), seconds, ROUNDS * len(LOADS), _run)


async def _run(run: BenchRun) -> None:
    dsn = embedded.start(run.data_dir).dsn
    async with node(run.data_dir, "zeromq") as (ports, _):
        url = f"tcp://127.0.0.1:{ports['zeromq']}"
        for _ in range(ROUNDS):
            for name in LOADS:
                run.step(name)
                run.note(await run.load("zeromq", name, url, run.seconds / ROUNDS))
                await run.raw_append(dsn, run.seconds / ROUNDS / 2)
