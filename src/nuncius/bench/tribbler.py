"""`bench tribbler`: a ring of three processes, clients in another one, and the job `timelines`."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from nuncius.bench.harness import BenchRun, measure
from nuncius.bench.result import Goal, Result
from nuncius.bench.ring.data import START, Seeds, graph
from nuncius.bench.ring.ring import BenchRing, nodes

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


def bench(console: Console, seconds: float, graph: tuple[int, int] = GRAPH) -> Result:
    """Run the benchmark. `graph`: users and follows of the job's larger graph; the other has a tenth."""
    with _spark() as spark:
        return measure(
            console, Result("tribbler", GOALS), seconds, STEPS, lambda run: _run(run, spark, *graph)
        )


async def _run(run: BenchRun, spark: "SparkSession", users: int, follows: int) -> None:
    async with nodes(run.directory / "cached") as ring:
        run.step("filling")
        star = await _user(ring, "star", FEW)
        young, old = await _user(ring, "young", FEW), await _user(ring, "old", HISTORY)
        await _fill(ring)
        run.step("hot keys")
        await _hot(run, ring, star)
        run.step("post")
        store = ring.stores[ring.addresses[0]]
        for _ in range(2):  # in the first round, nodes look up the ends of users' lists
            await run.raw_append(store, run.seconds / 2)
            run.figures |= await _load(run, "post", ring.addresses, *_users())
        await run.raw_append(store, run.seconds / 2)
        run.step("feeds")
        await _feeds(run, ring, spark)
        run.step("user_growth")
        few = await _load(run, "tribbles", ring.addresses, young)
        many = await _load(run, "tribbles", ring.addresses, old)
        run.figures["user_growth"] = many["p50_ms"] / few["p50_ms"]
        run.step("revoke_write_ms")
        run.figures |= await _load(run, "revoke", ring.addresses, star)
        run.step("timelines, a tenth")
        await _timelines(run, ring, spark, users // 10, follows // 10)  # warm up
        small = await _timelines(run, ring, spark, users // 10, follows // 10)
        run.step("timelines")
        large = await _timelines(run, ring, spark, users, follows)
        run.figures |= {"timelines_s": large, "timelines_growth": large / small}


async def _load(run: BenchRun, name: str, addresses: Sequence[str], *users: str) -> dict[str, float]:
    return await run.load("tribbler", name, ",".join(addresses), run.seconds, *users)


def _users() -> list[str]:
    return [f"user-{n}" for n in range(USERS)]


def _seeds(ring: BenchRing) -> Seeds:
    return Seeds(ring.ring, ring.stores)


async def _user(ring: BenchRing, name: str, tribbles: int) -> str:
    """Create a user with so many tribbles and its keys on the first node. Return its full name."""
    names = (f"{name}-{n}" for n in range(1000))
    chosen = next(each for each in names if ring.ring.owner(each) == ring.addresses[0])
    async with _seeds(ring) as seeds:
        await seeds.users([chosen])
        await seeds.posts(chosen, [START + n for n in range(tribbles)])
    return chosen


async def _fill(ring: BenchRing) -> None:
    """Create users with some tribbles each, and two readers."""
    users = _users()
    async with _seeds(ring) as seeds:
        await seeds.users([*users, "reader-few", "reader-many"])
        for n, user in enumerate(users):
            await seeds.posts(user, [START + m * 10**9 + n for m in range(POSTS)])
        await seeds.follows("reader-few", users[:FEW])
        await seeds.follows("reader-many", users[:MANY])


async def _hot(run: BenchRun, ring: BenchRing, star: str) -> None:
    """Read one user's keys at nodes that do not own them, on this ring and on one without a cache, in turns,
    so that noise affects both."""
    async with nodes(run.directory / "uncached", caching=False) as plain:
        await _user(plain, "star", FEW)
        for _ in range(ROUNDS):
            for name, each in (("uncached", plain), ("cached", ring)):
                reads = await each.hot_reads(star, run.seconds / ROUNDS)
                looks = await _load(run, "hot_feed", each.addresses[1:], star)
                run.note({f"hot_reads_{name}": reads, f"hot_feed_{name}": looks["hot_feed"]})


async def _feeds(run: BenchRun, ring: BenchRing, spark: "SparkSession") -> None:
    """Read the feeds of a user who follows few and of one who follows many, after the job has run, with
    tribbles that are newer than the job."""
    await asyncio.to_thread(_job, run, ring, spark)
    await _load(run, "post", ring.addresses, *_users()[:FEW])
    few = await _load(run, "feed", ring.addresses, "reader-few")
    many = await _load(run, "feed", ring.addresses, "reader-many")
    run.figures |= {"feed_p50_ms": few["p50_ms"], "feed_p99_ms": few["p99_ms"]}
    run.figures["feed_growth"] = many["p50_ms"] / few["p50_ms"]


async def _timelines(
    run: BenchRun, ring: BenchRing, spark: "SparkSession", users: int, follows: int
) -> float:
    """Return the seconds of a first run of the job, for so many users."""
    async with _seeds(ring) as seeds:
        await seeds.empty()
        for user, followed, times in graph(users, follows, users):
            await seeds.users([user])
            await seeds.follows(user, followed)
            await seeds.posts(user, times, contents=False)
    return await asyncio.to_thread(_job, run, ring, spark)


def _job(run: BenchRun, ring: BenchRing, spark: "SparkSession") -> float:
    from nuncius.pipeline.jobs import find
    from nuncius.pipeline.jobs.job import Context

    checkpoint = run.directory / "checkpoint"
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
