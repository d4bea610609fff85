"""What clients that do not read, or do not end what they begin, make a node keep: one budget."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import psutil
import pytest

from doors import unreading
from doors.unreading import KINDS, Crowd, Ports
from nuncius import testing

BUDGET = 128  # MB
MARGIN = 160  # MB, for what is just being fetched, encoded and written, and for what the C library keeps
CLIENTS = 100
PIECE = 1_000_000  # bytes of a request that does not end


class Node:
    """A node in a process of its own, and how much memory it had at most."""

    def __init__(self, broker: testing.Broker) -> None:
        self.ports = Ports(**broker._ready["ports"])  # noqa: SLF001
        self._process = psutil.Process(broker.pid)
        self.begin()

    def begin(self) -> None:
        """What it has now is what it needs anyway."""
        self.most = self.before = self._process.memory_info().rss

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Its memory is looked at all the time."""

        async def watch() -> None:
            while True:
                self.look()
                await asyncio.sleep(0.01)

        watching = asyncio.ensure_future(watch())
        try:
            yield
        finally:
            watching.cancel()

    def look(self) -> int:
        """MB more than at the beginning."""
        now: int = self._process.memory_info().rss
        self.most = max(self.most, now)
        return (now - self.before) >> 20

    @property
    def growth(self) -> int:
        """MB more than at the beginning, at most."""
        return (self.most - self.before) >> 20


@contextmanager
def started(dsn: str, *options: str) -> Iterator[Node]:
    doors = (f"--{door}-port=0" for door in ("stomp", "zeromq", "http", "tribbler"))
    with testing.broker(*doors, f"--max-memory={BUDGET}", *options, store=dsn) as broker:
        yield Node(broker)


async def prepare(node: Node, kind: str) -> None:
    if kind == "zeromq":
        await unreading.subscribe_zeromq(node.ports)
    if kind == "tribbler":
        await unreading.put_large(node.ports)
    await unreading.fill(node.ports)
    await KINDS[kind].reads(node.ports)
    node.begin()


@pytest.mark.parametrize("kind", KINDS)
async def test_clients_that_do_not_read(dsn: str, kind: str) -> None:
    """A hundred clients that ask for hundreds of megabytes and read nothing cost the budget and no more; a
    client that reads is served meanwhile, and the memory is given back."""
    with started(dsn) as node:
        await prepare(node, kind)
        async with node.watched():
            with Crowd() as crowd:
                await crowd.send(getattr(node.ports, KINDS[kind].door), CLIENTS, KINDS[kind].asks)
                for _ in range(2):
                    await KINDS[kind].reads(node.ports)
        assert node.growth <= BUDGET + MARGIN
        async with asyncio.timeout(30):
            while node.look() > MARGIN:  # noqa: ASYNC110  (a number of the system's)
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("door", "begun"),
    [
        ("telesto", unreading.NATIVE_HELLO + (8 << 20).to_bytes(4, "big") + bytes(PIECE)),
        (
            "stomp",
            unreading.STOMP_CONNECT + b"SEND\ndestination:a\ncontent-length:8000000\n\n" + bytes(PIECE),
        ),
        ("http", unreading.http_post("/v1/topics/t/messages/raw", 8 << 20) + bytes(PIECE)),
        ("tribbler", b'{"method":"StorageRPC.Put","params":[{"Key":"k","Value":"' + b"x" * PIECE),
    ],
)
async def test_requests_that_do_not_end(dsn: str, door: str, begun: bytes) -> None:
    """Five hundred connections that begin with a megabyte and never end it cost the budget and no more; a
    client that ends its requests is served meanwhile."""
    with started(dsn) as node:
        await unreading.fill(node.ports)
        node.begin()
        async with node.watched():
            with Crowd() as crowd:
                await crowd.send(getattr(node.ports, door), 500, lambda _: begun)
                await unreading.read_native(node.ports)
        assert node.growth <= BUDGET + MARGIN
