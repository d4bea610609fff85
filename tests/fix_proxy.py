"""A TCP proxy between a client and a node that breaks things on demand."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from native_peer import open_door
from nuncius.broker import Broker
from nuncius.client import AsyncClient


class Proxy:
    """Forwards bytes. `stall` holds them back both ways, `drop_answers` throws away what the node says, `cut`
    breaks all connections, `refuse` lets nobody in."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._dropping = False
        self._refusing = False
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        """How many there have been."""
        self.dropped = 0
        """Bytes of the node that did not arrive."""
        self.forwarded = 0
        """Bytes that went to the node."""

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Breaks all connections there are."""
        for writer in list(self._open):
            writer.transport.abort()

    def stall(self) -> None:
        self._flowing.clear()

    def flow(self) -> None:
        """Everything goes through again."""
        self._dropping = self._refusing = False
        self._flowing.set()

    def drop_answers(self) -> None:
        self._dropping = True
        self.dropped = 0

    def refuse(self) -> None:
        self._refusing = True

    @property
    def clients(self) -> int:
        """How many connections there are now."""
        return len(self._open) // 2

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._refusing:
            writer.transport.abort()
            return
        node_reader, node_writer = await asyncio.open_connection("127.0.0.1", self._target)
        both = {writer, node_writer}
        self._open |= both
        ways = [
            asyncio.ensure_future(self._forward(reader, node_writer, to_node=True)),
            asyncio.ensure_future(self._forward(node_reader, writer, to_node=False)),
        ]
        self._tasks |= set(ways)
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for end in both:
            end.transport.abort()
        self._open -= both
        self._tasks -= set(ways)

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_node: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._flowing.wait()
                if to_node:
                    self.forwarded += len(data)
                elif self._dropping:
                    self.dropped += len(data)
                    continue
                writer.write(data)
                await writer.drain()


@pytest.fixture
async def proxy(broker: Broker) -> AsyncIterator[Proxy]:
    """A proxy in front of a node on the test's database."""
    async with open_door(broker) as (_, port):
        made = Proxy(port)
        await made.open()
        yield made
        await made.close()


Connecting = Callable[..., Awaitable[AsyncClient]]


@pytest.fixture
async def through(proxy: Proxy) -> AsyncIterator[Connecting]:
    """Connects clients through the proxy; all are closed afterwards."""
    clients: list[AsyncClient] = []

    async def connect(**options: object) -> AsyncClient:
        client = await AsyncClient.connect(f"nuncius://127.0.0.1:{proxy.port}", **options)
        clients.append(client)
        return client

    yield connect
    proxy.flow()
    for client in clients:
        await client.close()


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[AsyncClient]:
    """A client of a node on the test's database, with nothing in between."""
    async with (
        open_door(broker) as (_, port),
        AsyncClient(f"nuncius://127.0.0.1:{port}", timeout=20) as connected,
    ):
        yield connected
