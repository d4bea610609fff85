"""`bench http`: the HTTP door, with clients in a separate process."""

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

from nuncius.bench.http_cluster import balanced_produce
from nuncius.bench.limits import BODY, RAW_ROWS, appends
from nuncius.bench.load.http import CONNECTIONS, fill, generator
from nuncius.bench.load.http_sockets import call
from nuncius.bench.nodes import ports_of_node
from nuncius.bench.result import Goal, Result, progress
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

Figures = dict[str, list[float]]


def bench(console: Console, seconds: float) -> Result:
    result = Result("http", GOALS, tools={"generator": generator()})
    steps = ROUNDS * (len(LOADS) + len(PARTITIONS) + len(BACKLOGS)) + 2
    with progress(console, steps) as bar, tempfile.TemporaryDirectory(prefix="nun-") as parent:
        data_dir = Path(parent) / "data"
        try:
            result.figures = uvloop.run(_run(bar, data_dir, seconds))
        finally:
            embedded.stop(data_dir)
    return result


async def _run(bar: Progress, data_dir: Path, seconds: float) -> dict[str, float]:
    """Return the median of several rounds for each figure, because the speed of a machine varies."""
    taken: Figures = {}
    dsn = embedded.start(data_dir).dsn
    async with ports_of_node(data_dir, "http", options=["--partition-threshold=0"]) as (ports, _):
        port = ports["http"]
        for _ in range(ROUNDS):
            for name in LOADS:
                figures = await _load(bar, name, port, seconds)
                figures["raw_append"] = await _raw_append(dsn, seconds / 2)
                for figure, value in figures.items():
                    taken.setdefault(figure, []).append(value)
        taken["partitions_growth"] = [await _growth(bar, port, seconds, await _partitioned(port))]
        bar.update(bar.tasks[0].id, description="filling the backlog", advance=1)
        topics = await _backlogs(dsn, min(1.0, seconds / USUAL_SECONDS))
        taken["backlog_growth"] = [await _growth(bar, port, seconds, topics)]
    bar.update(bar.tasks[0].id, description="balanced produce", advance=1)
    for figure, value in (await balanced_produce(data_dir, seconds)).items():
        taken[figure] = [value]
    return {figure: statistics.median(values) for figure, values in taken.items()}


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
    connection = await asyncpg.connect(dsn)
    try:
        topics = []
        for messages in BACKLOGS:
            topics.append(f"bench-{messages}-stored")
            await connection.execute(FILL, topics[-1], max(BACKLOGS[0], int(messages * share)), BODY[32:])
    finally:
        await connection.close()
    return topics


async def _growth(bar: Progress, port: int, seconds: float, topics: list[str]) -> float:
    """Return the cost of a message in the most expensive topic, divided by the cost in the cheapest."""
    costs: dict[str, list[float]] = {topic: [] for topic in topics}
    for _ in range(ROUNDS):
        for topic in topics:
            costs[topic].append((await _load(bar, "cost", port, seconds, topic))["cost"])
    middle = [statistics.median(each) for each in costs.values()]
    return max(middle) / min(middle)


async def _load(bar: Progress, name: str, port: int, seconds: float, *topic: str) -> dict[str, float]:
    bar.update(bar.tasks[0].id, description=" ".join([name, *topic]))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nuncius.bench.load.http", name, str(port), str(seconds / ROUNDS), *topic),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"load {name} failed")
    bar.advance(bar.tasks[0].id)
    figures: dict[str, float] = json.loads(out)
    return figures


async def _raw_append(dsn: str, seconds: float) -> float:
    connection = await asyncpg.connect(dsn)
    try:
        return await appends(connection, "bench-raw", RAW_ROWS, seconds / ROUNDS)
    finally:
        await connection.close()
