"""`bench core`: the engine, the broker in process, and the native protocol from another process."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from rich.console import Console

from nuncius.bench.harness import BenchRun, measure
from nuncius.bench.limits import BODY, appends, connected, engine_limit
from nuncius.bench.nodes import node
from nuncius.bench.result import Goal, Result
from nuncius.broker import Broker
from nuncius.store.server import embedded

GOALS = (
    Goal("raw_append", "engine_limit", at_least=0.4),
    Goal("inprocess_publish_256", "raw_append", at_least=0.5),
    Goal("publish_256", "raw_append", at_least=0.35),
    Goal("publish_1024", "raw_append", at_least=0.5),
    Goal("publish_batch", "raw_append", at_least=0.7),
    Goal("consume", "raw_append", at_least=0.8),
    Goal("queue_put_take", "raw_append", at_least=0.08),
    Goal("queue_put_take_held", "queue_put_take", at_least=0.8),
    Goal("publish_256_held", "publish_256", at_least=0.8),
    Goal("publish_1_ms", "direct_call_ms", at_most=2),
    Goal("rss_idle_mb", at_most=150),
    Goal("rss_backlog_growth_mb", at_most=100),
)
ROUNDS = 3
STEPS = 8 * ROUNDS + 7
HELD_ROUNDS = 2
HELD_MESSAGES = 200_000
BACKLOG = 1_000_000
CALLERS = 256


def bench(console: Console, seconds: float) -> Result:
    return measure(console, Result("core", GOALS), seconds, STEPS, _run)


async def _run(run: BenchRun) -> None:
    dsn = embedded.start(run.data_dir).dsn
    await in_process(run, dsn)
    async with node(run.data_dir, "telesto") as (ports, process):
        url = f"nuncius://127.0.0.1:{ports['telesto']}"
        run.step("rss_idle_mb")
        run.figures["rss_idle_mb"] = process.memory_info().rss / 2**20
        await topics(run, dsn, url)
        await queues(run, dsn, url)
        run.step("latency")
        run.figures |= await run.load("core", "latency", url, run.seconds * 2)
        run.step("rss_backlog_mb")
        before = process.memory_info().rss
        await run.load("core", "backlog", url, BACKLOG)
        run.figures["rss_backlog_mb"] = process.memory_info().rss / 2**20
        run.figures["rss_backlog_growth_mb"] = (process.memory_info().rss - before) / 2**20


def turn(run: BenchRun) -> float:
    """Return the seconds of one of several measurements. Figures that are compared are measured in turns."""
    return run.seconds * 2 / ROUNDS


async def in_process(run: BenchRun, dsn: str) -> None:
    async with Broker(dsn) as broker:
        for _ in range(ROUNDS):
            run.step("engine_limit")
            run.note({"engine_limit": await engine_limit(dsn, turn(run))})
            await run.raw_append(dsn, turn(run) / 2)
            run.step("inprocess_publish_256")
            run.note({"inprocess_publish_256": await publish_in_process(broker, turn(run))})
            await run.raw_append(dsn, turn(run) / 2)


async def publish_in_process(broker: Broker, seconds: float) -> float:
    """Return entries per second, with CALLERS callers that publish again as soon as their entry is stored."""
    loop = asyncio.get_running_loop()
    end = time.perf_counter() + seconds
    over = loop.create_future()
    done = 0
    active = CALLERS

    def stored(result: object) -> None:
        nonlocal done, active
        if isinstance(result, Exception):
            raise result
        done += 1
        if time.perf_counter() < end:
            broker.topics.publish_soon("bench-inprocess", [BODY], stored)
        else:
            active -= 1
            if not active:
                over.set_result(None)

    start = time.perf_counter()
    for _ in range(CALLERS):
        broker.topics.publish_soon("bench-inprocess", [BODY], stored)
    await over
    return done / (time.perf_counter() - start)


async def topics(run: BenchRun, dsn: str, url: str) -> None:
    for _ in range(ROUNDS):
        run.step("direct_call_ms")
        run.note({"direct_call_ms": 1000 / await appends(dsn, "bench-one", 1, turn(run))})
        run.step("direct_counted_ms")
        counted = await appends(dsn, "bench-counted", 1, turn(run), counted=True)
        run.note({"direct_counted_ms": 1000 / counted})
        for name in ("publish_1", "publish_256", "publish_1024", "publish_batch"):
            run.step(name)
            run.note(await run.load("core", name, url, turn(run)))
            await run.raw_append(dsn, turn(run) / 2)
    run.figures["publish_1_ms"] = 1000 / run.figures["publish_1"]
    run.step("consume")
    published = await _count(dsn)
    run.note(await run.load("core", "consume", url, published))
    await run.raw_append(dsn, turn(run) / 2)
    run.step("publish_256_held")
    await held(run, dsn, "publish_256", lambda: run.load("core", "publish_256", url, turn(run)), _count)


async def queues(run: BenchRun, dsn: str, url: str) -> None:
    messages = int(12_000 * run.seconds)
    run.step("queue_put_take")
    run.note(await run.load("core", "put_take", url, messages))
    await run.raw_append(dsn, turn(run) / 2)
    run.step("queue_put_take_held")
    await held(run, dsn, "queue_put_take", lambda: run.load("core", "put_take", url, messages), _last_message)


async def held(
    run: BenchRun,
    dsn: str,
    name: str,
    load: Callable[[], Awaitable[dict[str, float]]],
    count: Callable[[str], Awaitable[int]],
) -> None:
    """Measure a load while another connection holds a transaction open and many messages pass, in turns with
    the load without it."""
    for _ in range(HELD_ROUNDS):
        async with connected(dsn) as holder, holder.transaction(isolation="repeatable_read"):
            await holder.fetch("select 1 from nuncius.messages, nuncius.entries limit 1")
            before = await count(dsn)
            while await count(dsn) - before < HELD_MESSAGES:
                await load()
            for _ in range(HELD_ROUNDS):
                run.note({f"{name}_held": (await load())[name]})
        for _ in range(HELD_ROUNDS):
            run.note(await load())


async def _count(dsn: str) -> int:
    return await _value(
        dsn,
        "select coalesce(sum(nuncius.next_offset(partition_id)), 0)::bigint"
        " from nuncius.partitions join nuncius.topics using (topic_id) where topic_name = 'bench'",
    )


async def _last_message(dsn: str) -> int:
    return await _value(dsn, "select last_value from nuncius.messages_message_id_seq")


async def _value(dsn: str, sql: str) -> int:
    async with connected(dsn) as connection:
        value: int = await connection.fetchval(sql)
        return value
