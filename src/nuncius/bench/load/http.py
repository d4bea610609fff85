"""The loads of the HTTP door.

They run in a separate process: `python -m nuncius.bench.load.http NAME PORT SECONDS` prints its figures as
JSON. `generate` uses wrk where it is installed, else our own generator.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import uvloop

from nuncius.bench import http_wrk
from nuncius.bench.limits import BODY
from nuncius.bench.load.http_sockets import Ask, LoadResult, call, request, run, times, until

CONNECTIONS = 64
BATCH = 100
BATCHES_IN_FLIGHT = 8
FEW_CONSUMERS = 8
READ = 32_000  # messages for consumers to consume
LONGEST_READ = 20.0  # seconds in which no consumer can read all of READ
STREAM = 40_000  # messages for a stream of events to deliver
TEXT = BODY[32:127].replace(b'"', b"'").replace(b"\\", b"/").decode() + "12345"  # 100 bytes that are text


def generator() -> str:
    return "wrk" if http_wrk.program() else "own"


async def generate(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> LoadResult:
    """Send these requests again and again."""
    wrk = http_wrk.program()
    if wrk is not None:
        return await http_wrk.run(wrk, port, requests, connections, seconds)
    return await _own(port, requests, connections, seconds)


async def _own(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> LoadResult:
    """Send with our own generator. Each connection repeats one of the requests."""
    end = time.perf_counter() + seconds
    return await run(port, [until(end, requests[n % len(requests)]) for n in range(connections)])


def new_topic() -> str:
    return f"bench-{time.time_ns()}"


async def fill(port: int, topic: str, messages: int) -> None:
    """Publish that many messages, in large batches."""
    size = min(messages, 1000)
    entries = [{"body": TEXT, "key": str(n)} for n in range(size)]  # over all partitions
    batch = request("POST", f"/v1/topics/{topic}/messages/batch", {"messages": entries})
    todo = times(messages // size, batch)
    await run(port, [todo] * 4)


async def stored(port: int, topic: str) -> int:
    """Return the number of messages that a new consumer finds."""
    return await _unread(port, topic, await _consumer(port, topic))


async def _consumer(port: int, topic: str) -> int:
    consumer: int = (await call(port, "POST", "/consumer/register", {"topic": topic}))["consumer_id"]
    return consumer


async def _unread(port: int, topic: str, consumer: int) -> int:
    size: int = (await call(port, "GET", f"/size?topic={topic}&consumer_id={consumer}"))["size"]
    return size


def compare(answered: int, found: int, under_way: int) -> None:
    """Check that every confirmed message is stored, and besides them at most those still under way."""
    if not answered <= found <= answered + under_way:
        raise RuntimeError(f"{answered} messages were confirmed, and the store tells of {found}")


async def produce(port: int, seconds: float) -> dict[str, float]:
    topic = new_topic()
    what = await _production(port, topic)
    await _own(port, [what], CONNECTIONS, seconds / 4)  # warm up
    before = await stored(port, topic)
    load = await generate(port, [what], CONNECTIONS, seconds)
    compare(load.answered, await stored(port, topic) - before, CONNECTIONS)
    return {f"produce_{CONNECTIONS}": load.rate, "generator_share": load.share}


async def _production(port: int, topic: str) -> bytes:
    """Register a producer and return its produce request."""
    producer = (await call(port, "POST", "/producer/register", {"topic": topic}))["producer_id"]
    message = {"topic": topic, "producer_id": producer, "message": TEXT}
    return request("POST", "/producer/produce", message)


async def consume(port: int, seconds: float) -> dict[str, float]:
    """Read with one consumer a connection, each from the first message on. An empty answer is an error."""
    topic = new_topic()
    await fill(port, topic, READ)
    consumers = [await _consumer(port, topic) for _ in range(CONNECTIONS)]
    asked = [_consumption(topic, consumer) for consumer in consumers]
    before = await _unread(port, topic, consumers[0]) * CONNECTIONS
    load = await generate(port, asked, CONNECTIONS, min(seconds, LONGEST_READ))
    left = sum([await _unread(port, topic, consumer) for consumer in consumers])
    compare(load.answered, before - left, CONNECTIONS)
    return {f"consume_{CONNECTIONS}": load.rate}


def _consumption(topic: str, consumer: int) -> bytes:
    return request("GET", f"/consumer/consume?topic={topic}&consumer_id={consumer}")


async def cost(port: int, seconds: float, topic: str) -> dict[str, float]:
    """Return the seconds that it takes to produce and consume a message of this topic."""
    what = await _production(port, topic)
    await _own(port, [what], CONNECTIONS, seconds / 4)  # warm up
    produced = await _own(port, [what], CONNECTIONS, seconds)
    consumed = await _drain(port, topic, seconds)
    return {"cost": 1 / produced.rate + 1 / consumed.rate}


async def _drain(port: int, topic: str, seconds: float) -> LoadResult:
    """Read some of the stored messages with a few consumers, on all connections."""
    asks: list[Ask] = []
    for _ in range(FEW_CONSUMERS):
        what = _consumption(topic, await _consumer(port, topic))
        asks += [times(READ // 4 // FEW_CONSUMERS, what)] * (CONNECTIONS // FEW_CONSUMERS)
    end = time.perf_counter() + seconds
    return await run(port, [lambda a=ask: a() if time.perf_counter() < end else None for ask in asks])  # type: ignore[misc]


async def produce_batch(port: int, seconds: float) -> dict[str, float]:
    topic = new_topic()
    body = {"messages": [{"body": TEXT}] * BATCH}
    what = request("POST", f"/v1/topics/{topic}/messages/batch", body)
    await fill(port, topic, BATCH)  # makes the topic, however short the warm-up is
    await _own(port, [what], BATCHES_IN_FLIGHT, seconds / 4)  # warm up
    before = await stored(port, topic)
    load = await generate(port, [what], BATCHES_IN_FLIGHT, seconds)
    compare(load.answered * BATCH, await stored(port, topic) - before, BATCHES_IN_FLIGHT * BATCH)
    return {"produce_batch": load.rate * BATCH}


async def events(port: int, seconds: float) -> dict[str, float]:
    """Measure how fast one event stream delivers stored messages."""
    del seconds
    topic = new_topic()
    await fill(port, topic, STREAM)
    path = f"/v1/topics/{topic}/subscriptions"
    await call(port, "POST", path, {"name": "bench", "start": "earliest"})
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    start = time.perf_counter()
    writer.write(request("GET", f"{path}/bench/events"))
    seen = 0
    while seen < STREAM:
        data = await reader.read(1 << 20)
        if not data:
            raise RuntimeError("the stream ended")
        seen += data.count(b"\nid: ")
        seen += data.startswith(b"id: ")
    writer.close()
    return {"sse_deliveries": seen / (time.perf_counter() - start)}


LOADS: dict[str, Callable[..., Awaitable[dict[str, float]]]] = {
    "produce": produce,
    "consume": consume,
    "produce_batch": produce_batch,
    "events": events,
    "cost": cost,
}


async def main(name: str, port: str, seconds: str, *topic: str) -> None:
    sys.stdout.write(json.dumps(await LOADS[name](int(port), float(seconds), *topic)))


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
