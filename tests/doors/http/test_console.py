"""The way to the console, to whatever listens in its place."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from doors.http.peer import Node
from nuncius.broker import Broker
from nuncius.doors.http.door import HttpDoor
from nuncius.doors.http.web import console

Attend = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def in_front_of(broker: Broker, attend: Attend) -> AsyncIterator[Node]:
    """A node whose console is this."""
    async with await asyncio.start_server(attend, "127.0.0.1", 0) as server:
        door = HttpDoor(broker, console_port=server.sockets[0].getsockname()[1])
        try:
            yield Node(broker, door, await door.open("127.0.0.1", 0))
        finally:
            await door.close()


async def test_a_console_that_makes_no_sense(broker: Broker) -> None:
    """Its visitor is told that there is none, and the connection to it does not stay open."""
    rest: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"nonsense\r\n\r\n")
        rest.set_result(await reader.read())
        writer.close()

    async with in_front_of(broker, attend) as node, asyncio.timeout(20):
        assert (await node.get("/console/")).status == 503
        assert await rest == b""


async def test_a_request_that_is_too_large(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused, not passed on without its end."""
    monkeypatch.setattr(console, "MAX_REQUEST", 10)
    passed_on: list[bytes] = []

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        passed_on.append(head)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with in_front_of(broker, attend) as node, asyncio.timeout(20):
        assert (await node.post("/console/", b"x" * 10)).status == 200
        assert (await node.post("/console/", b"x" * 11)).status == 413
    assert len(passed_on) == 1
