"""Load generators of `bench core`, each in a separate process: `python -m nuncius.bench.load.core NAME URL
SECONDS` prints its figures as JSON."""

import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

from nuncius.bench.limits import BODY
from nuncius.client import AsyncClient

QUEUES = 10
EACH_WAY = 100
BATCH = 1000
BATCHES_IN_FLIGHT = 4
RATE = 1000


async def in_flight(callers: int, seconds: float, work: Callable[[], Awaitable[object]]) -> float:
    """Let that many callers do the work concurrently, each at least once. Return the rate per second."""
    done = 0
    start = time.perf_counter()
    end = start + seconds

    async def caller() -> None:
        nonlocal done
        while True:
            await work()
            done += 1
            if time.perf_counter() >= end:
                return

    await asyncio.gather(*(caller() for _ in range(callers)))
    return done / (time.perf_counter() - start)


async def publish(client: AsyncClient, seconds: float, callers: int) -> dict[str, float]:
    await in_flight(callers, seconds / 4, lambda: client.publish("bench", BODY))  # warm up
    rate = await in_flight(callers, seconds, lambda: client.publish("bench", BODY))
    return {f"publish_{callers}": rate}


async def publish_batch(client: AsyncClient, seconds: float) -> dict[str, float]:
    bodies = [BODY] * BATCH
    rate = await in_flight(BATCHES_IN_FLIGHT, seconds, lambda: client.publish_batch("bench", bodies))
    return {"publish_batch": rate * BATCH}


async def consume(client: AsyncClient, entries: int) -> dict[str, float]:
    """Read the entries that earlier loads published, one by one, with confirmations."""
    subscription = await client.subscribe("bench", f"bench-{time.time_ns()}", start="earliest")
    start = time.perf_counter()
    seen = 0
    async for _ in subscription:
        seen += 1
        if seen == entries:
            break
    passed = time.perf_counter() - start
    await subscription.close()
    await client.unsubscribe("bench", subscription.subscriber)
    return {"consume": seen / passed}


async def put_take(client: AsyncClient, messages: int) -> dict[str, float]:
    """Put and take every message once. Return pairs per second."""
    names = [f"bench-{n}" for n in range(QUEUES)]
    existing = {queue.name for queue in await client.queues(*names)}
    for name in names:
        if name not in existing:
            await client.create_queue(name)
    dice = random.Random(1)  # noqa: S311  (a plan that is the same every time)
    plan = [(dice.choice(names), dice.randint(1, 10)) for _ in range(messages)]
    puts, takes = iter(plan), iter(plan)

    async def putter() -> None:
        for queue, priority in puts:
            await client.put(queue, BODY, priority=priority)

    async def taker() -> None:
        for queue, _ in takes:
            if await client.take(queue, wait=60) is None:
                raise RuntimeError("a message is missing")

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(EACH_WAY) for worker in (putter, taker)))
    return {"queue_put_take": messages / (time.perf_counter() - start)}


async def latency(client: AsyncClient, seconds: float) -> dict[str, float]:
    """Measure the time from publish to delivery, at a steady rate."""
    subscription = await client.subscribe("bench-latency", "bench")
    count = int(RATE * seconds)
    took: list[float] = []

    async def read() -> None:
        async for entry in subscription:
            took.append(time.perf_counter() - float(entry.body))
            if len(took) == count:
                break

    reader = asyncio.ensure_future(read())
    await client.publish("bench-warm", BODY)
    start = time.perf_counter()
    pending = []
    for number in range(count):
        await asyncio.sleep(start + number / RATE - time.perf_counter())
        pending.append(client.publish("bench-latency", repr(time.perf_counter())))
    await asyncio.gather(*pending)
    await reader
    await subscription.close()
    cuts = statistics.quantiles(took[count // 10 :], n=100)
    return {"latency_p50_ms": cuts[49] * 1000, "latency_p99_ms": cuts[98] * 1000}


async def backlog(client: AsyncClient, messages: int) -> dict[str, float]:
    """Put that many messages into a queue and leave them there."""
    await client.create_queue("bench-backlog")
    todo = iter(range(0, messages, BATCH))

    async def putter() -> None:
        for _ in todo:
            await client.put_batch("bench-backlog", [BODY] * BATCH)

    await asyncio.gather(*(putter() for _ in range(BATCHES_IN_FLIGHT)))
    return {"backlog": messages}


LOADS: dict[str, Callable[[AsyncClient, float], Awaitable[dict[str, float]]]] = {
    "publish_1": lambda client, seconds: publish(client, seconds, 1),
    "publish_256": lambda client, seconds: publish(client, seconds, 256),
    "publish_1024": lambda client, seconds: publish(client, seconds, 1024),
    "publish_batch": publish_batch,
    "consume": lambda client, entries: consume(client, int(entries)),
    "put_take": lambda client, messages: put_take(client, int(messages)),
    "latency": latency,
    "backlog": lambda client, messages: backlog(client, int(messages)),
}


async def main(name: str, url: str, amount: float) -> None:
    async with AsyncClient(url, timeout=120) as client:
        figures = await LOADS[name](client, amount)
    sys.stdout.write(json.dumps(figures))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
