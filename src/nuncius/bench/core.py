"""`bench core`: the engine, the broker in process, and the native protocol from another process."""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import uvloop
from rich.console import Console
from rich.progress import Progress

from nuncius.bench.limits import BODY, RAW_ROWS, appends, engine_limit
from nuncius.bench.nodes import node
from nuncius.bench.result import Goal, Result, progress
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


class Run:
    """One run: a store, later a node on it, and the figures so far. Figures that are compared are measured in
    turns, several times, and the median counts, because the speed of a machine varies."""

    def __init__(self, seconds: float, bar: Progress, figures: dict[str, float]) -> None:
        self.seconds = seconds
        self.turn = seconds * 2 / ROUNDS
        self.figures = figures
        self._bar = bar
        self._taken: dict[str, list[float]] = {}

    def step(self, name: str) -> None:
        task = self._bar.tasks[0]
        self._bar.update(task.id, description=name, advance=0 if task.description == "starting" else 1)

    def note(self, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            taken = self._taken.setdefault(name, [])
            taken.append(value)
            self.figures[name] = statistics.median(taken)

    async def raw_append(self, dsn: str) -> None:
        self.note({"raw_append": await self.appends(dsn, "bench-raw", RAW_ROWS, self.turn / 2)})

    async def appends(
        self, dsn: str, topic: str, rows: int, seconds: float, *, counted: bool = False
    ) -> float:
        connection = await asyncpg.connect(dsn)
        try:
            return await appends(connection, topic, rows, seconds, counted=counted)
        finally:
            await connection.close()

    async def load(self, name: str, url: str, amount: float) -> dict[str, float]:
        """Run a load generator in a separate process and return its figures."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "nuncius.bench.load.core", name, url, str(amount)),
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"load {name} failed")
        figures: dict[str, float] = json.loads(out)
        return figures


def bench(console: Console, seconds: float) -> Result:
    result = Result("core", GOALS)
    with progress(console, STEPS) as bar, tempfile.TemporaryDirectory(prefix="nun-") as parent:
        data_dir = Path(parent) / "data"
        try:
            uvloop.run(_run(Run(seconds, bar, result.figures), data_dir))
        finally:
            embedded.stop(data_dir)
    return result


async def _run(run: Run, data_dir: Path) -> None:
    dsn = embedded.start(data_dir).dsn
    await in_process(run, dsn)
    async with node(data_dir) as (port, process):
        url = f"nuncius://127.0.0.1:{port}"
        run.step("rss_idle_mb")
        run.figures["rss_idle_mb"] = process.memory_info().rss / 2**20
        await topics(run, dsn, url)
        await queues(run, dsn, url)
        run.step("latency")
        run.figures |= await run.load("latency", url, run.seconds * 2)
        run.step("rss_backlog_mb")
        before = process.memory_info().rss
        await run.load("backlog", url, BACKLOG)
        run.figures["rss_backlog_mb"] = process.memory_info().rss / 2**20
        run.figures["rss_backlog_growth_mb"] = (process.memory_info().rss - before) / 2**20
        run.step("done")


async def in_process(run: Run, dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    async with Broker(dsn) as broker:
        for _ in range(ROUNDS):
            run.step("engine_limit")
            run.note({"engine_limit": await engine_limit(connection, run.turn)})
            await run.raw_append(dsn)
            run.step("inprocess_publish_256")
            run.note({"inprocess_publish_256": await publish_in_process(broker, run.turn)})
            await run.raw_append(dsn)
    await connection.close()


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


async def topics(run: Run, dsn: str, url: str) -> None:
    for _ in range(ROUNDS):
        run.step("direct_call_ms")
        run.note({"direct_call_ms": 1000 / await run.appends(dsn, "bench-one", 1, run.turn)})
        run.step("direct_counted_ms")
        counted = await run.appends(dsn, "bench-counted", 1, run.turn, counted=True)
        run.note({"direct_counted_ms": 1000 / counted})
        for name in ("publish_1", "publish_256", "publish_1024", "publish_batch"):
            run.step(name)
            run.note(await run.load(name, url, run.turn))
            await run.raw_append(dsn)
    run.figures["publish_1_ms"] = 1000 / run.figures["publish_1"]
    run.step("consume")
    published = await _count(dsn)
    run.note(await run.load("consume", url, published))
    await run.raw_append(dsn)
    run.step("publish_256_held")
    await held(run, dsn, "publish_256", lambda: run.load("publish_256", url, run.turn), _count)


async def queues(run: Run, dsn: str, url: str) -> None:
    messages = int(12_000 * run.seconds)
    run.step("queue_put_take")
    run.note(await run.load("put_take", url, messages))
    await run.raw_append(dsn)
    run.step("queue_put_take_held")
    await held(run, dsn, "queue_put_take", lambda: run.load("put_take", url, messages), _last_message)


async def held(
    run: Run,
    dsn: str,
    name: str,
    load: Callable[[], Awaitable[dict[str, float]]],
    count: Callable[[str], Awaitable[int]],
) -> None:
    """Measure a load while another connection holds a transaction open and many messages pass, in turns with
    the load without it."""
    for _ in range(HELD_ROUNDS):
        holder = await asyncpg.connect(dsn)
        async with holder.transaction(isolation="repeatable_read"):
            await holder.fetch("select 1 from nuncius.messages, nuncius.entries limit 1")
            before = await count(dsn)
            while await count(dsn) - before < HELD_MESSAGES:
                await load()
            for _ in range(HELD_ROUNDS):
                run.note({f"{name}_held": (await load())[name]})
        await holder.close()
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
    connection = await asyncpg.connect(dsn)
    try:
        value: int = await connection.fetchval(sql)
        return value
    finally:
        await connection.close()
