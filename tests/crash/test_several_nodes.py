"""Several nodes on one store, and many clients that use the same queues and topics through them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import pytest

from nuncius import testing
from nuncius.client import AsyncClient


@pytest.fixture(params=[2, 4])
def nodes(request: pytest.FixtureRequest, dsn: str) -> Iterator[list[testing.Broker]]:
    """Nodes in processes of their own."""
    with ExitStack() as stack:
        yield [stack.enter_context(testing.broker(store=dsn)) for _ in range(request.param)]


@asynccontextmanager
async def clients(nodes: list[testing.Broker], each: int) -> AsyncIterator[list[AsyncClient]]:
    """So many clients of each node."""
    async with AsyncExitStack() as stack:
        made = [node.async_client(timeout=60) for node in nodes for _ in range(each)]
        yield [await stack.enter_async_context(client) for client in made]


async def test_a_queue_between_nodes(nodes: list[testing.Broker]) -> None:
    """Putters and takers at all nodes at once: every message is taken once, none is lost, and of each putter
    and priority each taker gets messages in order."""
    total = 400
    taken: list[list[tuple[int, int, int]]] = []
    enough = asyncio.Event()

    async def putter(client: AsyncClient, name: int) -> None:
        for n in range(total):
            await client.put("jobs", f"{name} {n}", priority=1 + n % 3)

    async def taker(client: AsyncClient) -> None:
        mine: list[tuple[int, int, int]] = []
        taken.append(mine)
        while not enough.is_set():
            message = await client.take("jobs", wait=0.3)
            if message is not None:
                name, n = message.text.split()
                mine.append((int(name), message.priority, int(n)))
                if sum(map(len, taken)) == total * len(nodes):
                    enough.set()

    async with clients(nodes, 1) as putting, clients(nodes, 2) as taking, asyncio.timeout(120):
        await putting[0].create_queue("jobs")
        await asyncio.gather(*(putter(client, n) for n, client in enumerate(putting)), *map(taker, taking))
        assert await putting[0].take("jobs") is None
    everything = Counter(each for mine in taken for each in mine)
    assert len(everything) == total * len(nodes)
    assert max(everything.values()) == 1
    for mine in taken:
        for name in range(len(nodes)):
            for priority in (1, 2, 3):
                numbers = [n for who, p, n in mine if (who, p) == (name, priority)]
                assert numbers == sorted(numbers)


async def test_strict_order_between_nodes(nodes: list[testing.Broker]) -> None:
    """What is in a queue is taken in strict priority order, oldest first, whichever node is asked in turn."""
    async with clients(nodes, 1) as everybody, asyncio.timeout(120):
        await everybody[0].create_queue("jobs")
        for n in range(120):
            await everybody[n % len(everybody)].put("jobs", f"{n}", priority=1 + (7 * n) % 10)
        taken = []
        for n in range(120):
            message = await everybody[(n // 3) % len(everybody)].take("jobs")
            assert message is not None, "a false nothing-there"
            taken.append((-message.priority, int(message.text)))
        assert taken == sorted(taken)


async def test_a_topic_between_nodes(nodes: list[testing.Broker]) -> None:
    """Publishers and subscribers at all nodes at once: every subscriber sees the same sequence, without gaps
    or doubles, and each publisher in its order."""
    total = 300

    async def publisher(client: AsyncClient, name: int) -> None:
        for start in range(0, total, 10):
            calls = [client.publish("news", f"{name} {start + n}") for n in range(10)]
            await asyncio.gather(*calls)

    async def subscriber(client: AsyncClient, name: int) -> list[tuple[int, str]]:
        seen: list[tuple[int, str]] = []
        async for entry in await client.subscribe("news", f"reader {name}", start="earliest"):
            seen.append((entry.offset, entry.text))
            if len(seen) == total * len(nodes):
                break
        return seen

    async with clients(nodes, 1) as writing, clients(nodes, 1) as reading, asyncio.timeout(120):
        subscribers = [asyncio.ensure_future(subscriber(c, n)) for n, c in enumerate(reading)]
        await asyncio.gather(*(publisher(client, n) for n, client in enumerate(writing)))
        sequences = await asyncio.gather(*subscribers)
    assert [offset for offset, _ in sequences[0]] == list(range(total * len(nodes)))
    assert all(sequence == sequences[0] for sequence in sequences)
    for name in range(len(nodes)):
        mine = [int(text.split()[1]) for _, text in sequences[0] if text.startswith(f"{name} ")]
        assert mine == list(range(total))


async def test_a_client_that_changes_nodes(nodes: list[testing.Broker]) -> None:
    """A client whose node is killed goes on at another; nothing is lost or doubled on the way."""
    url = "nuncius://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    async with AsyncClient(url, timeout=60) as client, asyncio.timeout(120):
        calls = []
        for n in range(600):
            calls.append(asyncio.ensure_future(client.publish("news", f"{n}")))
            if n % 20 == 0:
                await calls[n // 2]
            if n == 300:
                await asyncio.to_thread(nodes[0].kill)
        await asyncio.gather(*calls)
        entries = await client.fetch("news", limit=1000)
        assert [entry.text for entry in entries] == [f"{n}" for n in range(600)]
