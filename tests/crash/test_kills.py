"""Nodes and PostgreSQL are killed in the middle of everything, and nothing that was acknowledged is lost."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from nuncius import testing
from nuncius.client import AsyncClient, AsyncSubscription, NunciusError
from nuncius.store.server import embedded

PUBLISHERS = 16
TOPIC, QUEUE = "crash", "crash"


@dataclass
class Ledger:
    """What the clients were told."""

    published: list[str] = field(default_factory=list)
    put: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    seen: list[tuple[int, str]] = field(default_factory=list)
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(90):
            while not condition():
                self.moved.clear()
                await self.moved.wait()


async def publisher(client: AsyncClient, number: int, ledger: Ledger) -> None:
    for n in range(1_000_000):
        if ledger.over:
            return
        text = f"{number}-{n}"
        try:
            await client.publish(TOPIC, text)
            ledger.published.append(text)
            await client.put(QUEUE, text, priority=1 + n % 10)
            ledger.put.append(text)
        except NunciusError:
            ledger.refused.add(text)  # its outcome is unknown, or it was not stored
        ledger.moved.set()


async def reader(subscription: AsyncSubscription, ledger: Ledger) -> None:
    async for entry in subscription:
        ledger.seen.append((entry.offset, entry.text))
        ledger.moved.set()


async def run(broker: testing.Broker, kills: int, strike: Callable[[], Awaitable[None]]) -> Ledger:
    """Load on the broker while it is struck again and again, each time after a random number of messages."""
    dice = random.Random(11)
    ledger = Ledger()
    async with broker.async_client(timeout=60) as client:
        await client.create_queue(QUEUE)
        subscription = await client.subscribe(TOPIC, "reader", start="earliest")
        reading = asyncio.ensure_future(reader(subscription, ledger))
        writing = [asyncio.ensure_future(publisher(client, n, ledger)) for n in range(PUBLISHERS)]
        for _ in range(kills):
            target = len(ledger.published) + dice.randint(100, 1500)
            await ledger.until(lambda target=target: len(ledger.published) >= target)  # type: ignore[misc]
            await strike()
        target = len(ledger.published) + 500
        await ledger.until(lambda: len(ledger.published) >= target)
        ledger.over = True
        await asyncio.gather(*writing)
        await ledger.until(lambda: {text for _, text in ledger.seen} >= set(ledger.published))
        reading.cancel()
        await check(client, ledger)
    return ledger


async def check(client: AsyncClient, ledger: Ledger) -> None:
    offsets = [offset for offset, _ in ledger.seen]
    assert offsets == list(range(len(offsets))), "the subscriber saw a gap or a duplicate"
    stored = Counter(text for _, text in ledger.seen)
    assert max(stored.values()) == 1, "a message was stored twice"
    assert set(ledger.published) <= set(stored)
    assert set(stored) <= set(ledger.published) | ledger.refused
    waiting: Counter[str] = Counter()
    while batch := await client.take_batch(QUEUE, 1000):
        waiting.update(message.text for message in batch)
    assert max(waiting.values()) == 1, "a message was put twice"
    assert set(ledger.put) <= set(waiting), "an acknowledged message is missing"


async def test_killing_the_node() -> None:
    """However often a node is killed, every acknowledged message is there once, every resent one is stored
    once, and a subscriber sees all of them in order."""
    with testing.broker() as broker:

        async def strike() -> None:
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)

        ledger = await run(broker, 6, strike)
    assert not ledger.refused


async def test_killing_postgresql(data_dir: Path) -> None:
    """The same when it is PostgreSQL that is killed, and the node has to find it again."""
    server = embedded.start(data_dir)
    with testing.broker(store=server.dsn) as broker:

        async def strike() -> None:
            running = embedded.running(data_dir)
            assert running is not None
            os.kill(running.pid, signal.SIGKILL)
            await asyncio.to_thread(embedded.start, data_dir)

        await run(broker, 4, strike)


async def test_a_store_that_is_away_for_a_while(data_dir: Path) -> None:
    """While the store is away for ten seconds calls wait; when it is back they are carried out, once."""
    server = embedded.start(data_dir)
    with testing.broker(store=server.dsn) as broker:
        async with broker.async_client(timeout=60) as client:
            before = await client.publish(TOPIC, "before")
            assert before.offset == 0
            embedded.stop(data_dir)
            calls = [asyncio.ensure_future(client.publish(TOPIC, f"{n}")) for n in range(100)]
            done, waiting = await asyncio.wait(calls, timeout=10)
            assert not done
            embedded.start(data_dir)
            receipts = await asyncio.wait_for(asyncio.gather(*waiting), 60)
            assert sorted(receipt.offset or 0 for receipt in receipts) == list(range(1, 101))
            assert [entry.text for entry in await client.fetch(TOPIC, limit=1000)][:1] == ["before"]
            assert len(await client.fetch(TOPIC, limit=1000)) == 101
