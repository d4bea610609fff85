"""A Tribbler port, and clients of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from fix_store import Databases
from nuncius.broker import Broker
from nuncius.doors.tribbler.door import TribblerDoor
from nuncius.doors.tribbler.rpc_client import RpcClient
from nuncius.ring.settings import RingSettings

Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@pytest.fixture
def dsns(dsn: str, away: str, database_from: Databases, template: str) -> Iterator[list[str]]:
    """Three databases."""
    with database_from(template) as third:
        yield [dsn, away, third]


@pytest.fixture
async def port(broker: Broker) -> AsyncIterator[int]:
    """The port of a node that is a ring of its own."""
    door = TribblerDoor(broker, RingSettings(7))
    yield await door.open("localhost", 0)
    await door.close()


@pytest.fixture
async def caller(port: int) -> AsyncIterator[RpcClient]:
    """A client by Go RPC."""
    made = RpcClient(f"localhost:{port}")
    yield made
    made.close()


@pytest.fixture
async def dial(port: int) -> AsyncIterator[Dial]:
    """Opens plain connections to the port."""
    opened: list[asyncio.StreamWriter] = []

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("localhost", port)
        opened.append(writer)
        return reader, writer

    yield connect
    for writer in opened:
        writer.close()
