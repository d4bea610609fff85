"""`bench tribbler`: a ring of three processes, clients in another one, and the job `timelines`."""

import asyncio
import contextlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import uvloop
from rich.console import Console
from rich.progress import Progress

from nuncius.bench.limits import RAW_ROWS, appends
from nuncius.bench.result import Goal, Result, progress
from nuncius.bench.ring.data import START, Seeds, graph
from nuncius.bench.ring.ring import Nodes, nodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOALS = (
    Goal("hot_reads_cached", "hot_reads_uncached", at_least=20),
    Goal("hot_feed_cached", "hot_feed_uncached", at_least=2),
    Goal("user_growth", at_most=1.5),
    Goal("feed_growth", at_most=3),
    Goal("timelines_growth", at_most=12),
    Goal("post", "raw_append", at_least=0.01),
)
STEPS = 8
ROUNDS = 3
USERS = 1000
FEW, MANY = 100, 1000
POSTS = 20
HISTORY = 100_000
GRAPH = (100_000, 2_000_000)


@dataclass(slots=True)
class Run:
    """One run: its ring's directory and the figures so far."""

    parent: Path
    seconds: float
    bar: Progress
    graph: tuple[int, int]
    figures: dict[str, float] = field(default_factory=dict)
    raw: list[float] = field(default_factory=list)

    def step(self, name: str) -> None:
        task = self.bar.tasks[0]
        self.bar.update(task.id, description=name, advance=0 if task.description == "starting" else 1)

    async def load(self, name: str, addresses: Sequence[str], *users: str) -> dict[str, float]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nuncius.bench.load.tribbler", name, ",".join(addresses)),
            *(str(self.seconds), *users),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"load {name} failed")
        figures: dict[str, float] = json.loads(out)
        return figures

    async def raw_append(self, dsn: str) -> None:
        """Measure again and keep the median, because the speed of a machine varies."""
        connection = await asyncpg.connect(dsn)
        self.raw.append(await appends(connection, "bench-raw", RAW_ROWS, self.seconds / 2))
        self.figures["raw_append"] = statistics.median(self.raw)
        await connection.close()


def bench(console: Console, seconds: float, graph: tuple[int, int] = GRAPH) -> Result:
    """Run the benchmark. `graph`: users and follows of the job's larger graph; the other has a tenth."""
    result = Result("tribbler", GOALS)
    with progress(console, STEPS) as bar, tempfile.TemporaryDirectory(prefix="nun-") as parent:
        run = Run(Path(parent), seconds, bar, graph, result.figures)
        with _spark() as spark:
            uvloop.run(_run(run, spark))
    return result


async def _run(run: Run, spark: "SparkSession") -> None:
    async with nodes(run.parent / "cached") as ring:
        run.step("filling")
        star = await _user(ring, "star", FEW)
        young, old = await _user(ring, "young", FEW), await _user(ring, "old", HISTORY)
        await _fill(ring)
        run.step("hot keys")
        await _hot(run, ring, star)
        run.step("post")
        store = ring.stores[ring.addresses[0]]
        for _ in range(2):  # in the first round, nodes look up the ends of users' lists
            await run.raw_append(store)
            run.figures |= await run.load("post", ring.addresses, *_users())
        await run.raw_append(store)
        run.step("feeds")
        await _feeds(run, ring, spark)
        run.step("user_growth")
        few = await run.load("tribbles", ring.addresses, young)
        many = await run.load("tribbles", ring.addresses, old)
        run.figures["user_growth"] = many["p50_ms"] / few["p50_ms"]
        run.step("revoke_write_ms")
        run.figures |= await run.load("revoke", ring.addresses, star)
        run.step("timelines, a tenth")
        users, follows = run.graph
        await _timelines(run, ring, spark, users // 10, follows // 10)  # warm up
        small = await _timelines(run, ring, spark, users // 10, follows // 10)
        run.step("timelines")
        large = await _timelines(run, ring, spark, users, follows)
        run.figures |= {"timelines_s": large, "timelines_growth": large / small}
        run.step("done")


def _users() -> list[str]:
    return [f"user-{n}" for n in range(USERS)]


def _seeds(ring: Nodes) -> Seeds:
    return Seeds(ring.ring, ring.stores)


async def _user(ring: Nodes, name: str, tribbles: int) -> str:
    """Create a user with so many tribbles and its keys on the first node. Return its full name."""
    names = (f"{name}-{n}" for n in range(1000))
    chosen = next(each for each in names if ring.ring.owner(each) == ring.addresses[0])
    async with _seeds(ring) as seeds:
        await seeds.users([chosen])
        await seeds.posts(chosen, [START + n for n in range(tribbles)])
    return chosen


async def _fill(ring: Nodes) -> None:
    """Create users with some tribbles each, and two readers."""
    users = _users()
    async with _seeds(ring) as seeds:
        await seeds.users([*users, "reader-few", "reader-many"])
        for n, user in enumerate(users):
            await seeds.posts(user, [START + m * 10**9 + n for m in range(POSTS)])
        await seeds.follows("reader-few", users[:FEW])
        await seeds.follows("reader-many", users[:MANY])


async def _hot(run: Run, ring: Nodes, star: str) -> None:
    """Read one user's keys at nodes that do not own them, on this ring and on one without a cache, in turns,
    so that noise affects both."""
    taken: dict[str, list[float]] = {}
    async with nodes(run.parent / "uncached", caching=False) as plain:
        await _user(plain, "star", FEW)
        for _ in range(ROUNDS):
            for name, each in (("uncached", plain), ("cached", ring)):
                reads = await each.hot_reads(star, run.seconds / ROUNDS)
                looks = await run.load("hot_feed", each.addresses[1:], star)
                taken.setdefault(f"hot_reads_{name}", []).append(reads)
                taken.setdefault(f"hot_feed_{name}", []).append(looks["hot_feed"])
    run.figures |= {name: statistics.median(values) for name, values in taken.items()}


async def _feeds(run: Run, ring: Nodes, spark: "SparkSession") -> None:
    """Read the feeds of a user who follows few and of one who follows many, after the job has run, with
    tribbles that are newer than the job."""
    await asyncio.to_thread(_job, run, ring, spark)
    await run.load("post", ring.addresses, *_users()[:FEW])
    few = await run.load("feed", ring.addresses, "reader-few")
    many = await run.load("feed", ring.addresses, "reader-many")
    run.figures |= {"feed_p50_ms": few["p50_ms"], "feed_p99_ms": few["p99_ms"]}
    run.figures["feed_growth"] = many["p50_ms"] / few["p50_ms"]


async def _timelines(run: Run, ring: Nodes, spark: "SparkSession", users: int, follows: int) -> float:
    """Return the seconds of a first run of the job, for so many users."""
    async with _seeds(ring) as seeds:
        await seeds.empty()
        for user, followed, times in graph(users, follows, users):
            await seeds.users([user])
            await seeds.follows(user, followed)
            await seeds.posts(user, times, contents=False)
    return await asyncio.to_thread(_job, run, ring, spark)


def _job(run: Run, ring: Nodes, spark: "SparkSession") -> float:
    from nuncius.pipeline.jobs import find
    from nuncius.pipeline.jobs.job import Context

    checkpoint = run.parent / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)
    settings = {"ring": ",".join(ring.addresses), "stores": ",".join(ring.stores.values())}
    store = ring.stores[ring.addresses[0]]
    start = time.perf_counter()
    find("timelines").run(Context(spark, store, settings, checkpoint=str(checkpoint)))
    return time.perf_counter() - start


@contextlib.contextmanager
def _spark() -> "Iterator[SparkSession]":
    from nuncius.pipeline import session

    spark = session("local[2]", app="nuncius bench")
    try:
        yield spark
    finally:
        spark.stop()
