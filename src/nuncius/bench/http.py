"""`bench http`: the HTTP door, with clients in a separate process."""

import statistics

from rich.console import Console

from nuncius.bench.harness import BenchRun, measure
from nuncius.bench.http_cluster import cluster
from nuncius.bench.limits import BODY, connected
from nuncius.bench.load.http import CONNECTIONS, fill, generator
from nuncius.bench.load.http_sockets import call
from nuncius.bench.nodes import node
from nuncius.bench.result import Goal, Result
from nuncius.store.server import embedded

GOALS = (
    Goal(f"produce_{CONNECTIONS}", "raw_append", at_least=0.04),
    Goal("produce_batch", "raw_append", at_least=0.25),
    Goal(f"balanced_produce_{CONNECTIONS}", f"produce_{CONNECTIONS}", at_least=0.33),
    Goal("generator_share", at_most=0.8),  # a busier generator would limit the figures
    Goal("partitions_growth", at_most=1.5),
    Goal("backlog_growth", at_most=1.5),
)
ROUNDS = 3
LOADS = ("produce", "consume", "produce_batch", "events")
PARTITIONS = (1, 16, 256)
STORED = 16_000  # messages in each topic of PARTITIONS
BACKLOGS = (10_000, 1_000_000)
USUAL_SECONDS = 9.0  # a shorter run has a smaller large backlog

FILL = (
    "with made as (select nuncius.ensure_topic($1) as topic_id)"
    " insert into nuncius.entries (partition_id, entry_offset, body)"
    " select p.partition_id, n, $3 from made join nuncius.partitions p using (topic_id),"
    " generate_series(0, $2::bigint - 1) n"
)


def bench(console: Console, seconds: float) -> Result:
    result = Result("http", GOALS, tools={"generator": generator()})
    steps = ROUNDS * (len(LOADS) + len(PARTITIONS) + len(BACKLOGS)) + 2
    return measure(console, result, seconds, steps, _run)


async def _run(run: BenchRun) -> None:
    dsn = embedded.start(run.data_dir).dsn
    async with node(run.data_dir, "http", options=["--partition-threshold=0"]) as (ports, _):
        port = ports["http"]
        for _ in range(ROUNDS):
            for name in LOADS:
                run.note(await _load(run, name, port))
                await run.raw_append(dsn, run.seconds / 2 / ROUNDS)
        run.note({"partitions_growth": await _growth(run, port, await _partitioned(port))})
        run.step("filling the backlog")
        topics = await _backlogs(dsn, min(1.0, run.seconds / USUAL_SECONDS))
        run.note({"backlog_growth": await _growth(run, port, topics)})
    run.step("balanced produce")
    async with cluster(run.data_dir) as port:
        balanced = await run.load("http", "produce", port, run.seconds)
    run.note({f"balanced_produce_{CONNECTIONS}": balanced[f"produce_{CONNECTIONS}"]})


async def _partitioned(port: int) -> list[str]:
    """Create topics that differ in their number of partitions."""
    topics = []
    for partitions in PARTITIONS:
        topics.append(f"bench-{partitions}-partitions")
        await call(port, "POST", "/v1/topics", {"name": topics[-1], "partitions": partitions})
        await fill(port, topics[-1], STORED)
    return topics


async def _backlogs(dsn: str, share: float) -> list[str]:
    """Create topics that differ in their number of stored messages."""
    topics = []
    async with connected(dsn) as connection:
        for messages in BACKLOGS:
            topics.append(f"bench-{messages}-stored")
            await connection.execute(FILL, topics[-1], max(BACKLOGS[0], int(messages * share)), BODY[32:])
    return topics


async def _growth(run: BenchRun, port: int, topics: list[str]) -> float:
    """Return the cost of a message in the most expensive topic, divided by the cost in the cheapest."""
    costs: dict[str, list[float]] = {topic: [] for topic in topics}
    for _ in range(ROUNDS):
        for topic in topics:
            costs[topic].append((await _load(run, "cost", port, topic))["cost"])
    middle = [statistics.median(each) for each in costs.values()]
    return max(middle) / min(middle)


async def _load(run: BenchRun, name: str, port: int, *topic: str) -> dict[str, float]:
    run.step(" ".join([name, *topic]))
    return await run.load("http", name, port, run.seconds / ROUNDS, *topic)
