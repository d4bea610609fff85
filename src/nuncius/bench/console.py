"""`bench console`: load times of pages on a large store, and the cost of an open page for publishers."""

import asyncio
import contextlib
import re
import statistics
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
from rich.console import Console
from websockets.asyncio.client import ClientConnection, connect

from nuncius.bench.harness import BenchRun, measure
from nuncius.bench.limits import connected
from nuncius.bench.nodes import DOORS, node
from nuncius.bench.result import Goal, Result
from nuncius.store import migrations
from nuncius.store.server import embedded

GOALS = (
    Goal("page_ms_p95", at_most=1000),
    Goal("publish_with_console", "publish_without", at_least=0.95),
    Goal("start_seconds", at_most=3),
)
PLACES = 1000  # queues, and as many topics
MESSAGES = 1_000_000  # half of them in queues, half in topics; a tenth in the deepest
ROUNDS = 6
STARTS = 3
PATHS = (
    *("", "queues", "queue?name=queue-1", "topics", "topic?name=topic-1", "subscriptions"),
    *("subscription?topic=topic-1&name=reader-1", "clients", "cluster", "pipelines", "store"),
)
FILL = """
select nuncius.create_queues(array(select 'queue-' || n from generate_series(1, {places}) n));
select nuncius.create_topic('topic-' || n) from generate_series(1, {places}) n;
select nuncius.subscribe('topic-' || n, 'reader-' || n, 'earliest', false) from generate_series(1, 100) n;
insert into nuncius.messages (queue_id, priority, message)
select q.queue_id, 1 + n % 10, '{{"a": "message of a queue"}}'
from nuncius.queues q, generate_series(1, case q.queue_name when 'queue-1' then {deep} else {each} end) n;
insert into nuncius.entries (partition_id, entry_offset, body)
select p.partition_id, n - 1, '{{"a": "message of a topic"}}'
from nuncius.partitions p join nuncius.topics t using (topic_id),
    generate_series(1, case t.topic_name when 'topic-1' then {deep} else {each} end) n;
"""
# Separate statements, because VACUUM cannot run in the transaction of FILL.
SETTLE = ("vacuum analyze nuncius.messages", "vacuum analyze nuncius.entries")


def bench(console: Console, seconds: float, messages: int = MESSAGES) -> Result:
    return measure(
        console, Result("console", GOALS), seconds, 3 + 2 * ROUNDS, lambda run: _run(run, messages)
    )


async def _run(run: BenchRun, messages: int) -> None:
    run.step("filling the store")
    await _fill(embedded.start(run.data_dir).dsn, messages)
    embedded.stop(run.data_dir)
    run.step("start_seconds")
    for _ in range(STARTS):
        run.note({"start_seconds": await _start(run.data_dir)})
    async with node(run.data_dir, "telesto", "http") as (ports, _):
        base = f"http://127.0.0.1:{ports['http']}/console/"
        url = f"nuncius://127.0.0.1:{ports['telesto']}"
        run.step("page_ms_p95")
        run.note(await _pages(base))
        names = ["publish_with_console", "publish_without"]
        for _ in range(ROUNDS):
            for name in names:
                run.step(name)
                async with _open(base) if name == "publish_with_console" else contextlib.nullcontext():
                    load = await run.load("core", "publish_256", url, run.seconds)
                run.note({name: load["publish_256"]})
            names.reverse()  # the second measurement may profit from warm caches


async def _fill(dsn: str, messages: int) -> None:
    async with connected(dsn) as connection:
        await migrations.migrate(connection)
        half = messages // 2
        deep = half // 5
        each = (half - deep) // (PLACES - 1)
        await connection.execute(FILL.format(places=PLACES, deep=deep, each=each))
        for statement in SETTLE:
            await connection.execute(statement)


async def _start(data_dir: Path) -> float:
    """Return the seconds until a node and its store are ready, with all doors open."""
    begin = time.perf_counter()
    async with node(data_dir, *DOORS):
        return time.perf_counter() - begin


async def _pages(base: str) -> dict[str, float]:
    """Return the milliseconds from the request of a page to its last byte, data included."""
    taken: list[float] = []
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        for round_number in range(1 + ROUNDS):
            for path in PATHS:
                begin = time.perf_counter()
                response = await http.get(base + path)
                passed = time.perf_counter() - begin
                response.raise_for_status()
                if round_number:  # the first visit starts the console
                    taken.append(1000 * passed)
    taken.sort()
    return {"page_ms_p50": statistics.median(taken), "page_ms_p95": taken[int(0.95 * (len(taken) - 1))]}


@contextlib.asynccontextmanager
async def _open(base: str) -> AsyncIterator[None]:
    """Keep the overview open as a browser does, with its WebSocket connected, so that it refreshes."""
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        page = (await http.get(base)).text
    client_id = re.search(r"[\"']?client_id[\"']?: *[\"']([0-9a-f-]{36})", page)
    if client_id is None:
        raise RuntimeError("the page does not say which client it is for")
    asked = {
        "client_id": client_id[1],
        "next_message_id": 0,
        "implicit_handshake": "true",
        "document_id": uuid.uuid4(),
        "tab_id": uuid.uuid4(),
        "EIO": 4,
        "transport": "websocket",
    }
    query = "&".join(f"{name}={value}" for name, value in asked.items())
    address = f"{base.replace('http:', 'ws:', 1)}_nicegui_ws/socket.io/?{query}"
    async with connect(address, proxy=None, max_size=None) as socket:
        reading = asyncio.ensure_future(_read(socket))
        try:
            yield
        finally:
            if reading.done():
                reading.result()
                raise RuntimeError("the console has closed the connection")
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading


async def _read(socket: ClientConnection) -> None:
    """Speak as much Socket.IO as keeps a connection open."""
    async for message in socket:
        if isinstance(message, str):
            if message.startswith("0"):
                await socket.send("40")
            elif message == "2":
                await socket.send("3")
