"""A peer of the native protocol, packet by packet and byte by byte."""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from nuncius.broker import Broker
from nuncius.node.shared_port import TelestoDoor
from nuncius.wire import codec as native
from nuncius.wire import packets

SECONDS = 60.0
P = TypeVar("P", bound=packets.Packet)


class NativePeer:
    """One connection to a node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = native.answers()
        self._arrived: deque[Any] = deque()
        self._numbers = itertools.count(1)

    def next_request(self) -> int:
        return next(self._numbers)

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def send(self, *several: packets.Packet) -> None:
        """Everything goes out as one write."""
        self._writer.write(b"".join(map(native.encode, several)))

    async def receive(self) -> Any:
        """The next packet, whatever it is; None at the end of the connection."""
        async with asyncio.timeout(SECONDS):
            while not self._arrived:
                data = await self._reader.read(1 << 16)
                if not data:
                    return None
                self._arrived.extend(self._decoder.receive(data))
        return self._arrived.popleft()

    async def expect(self, kind: type[P]) -> P:
        """The next packet, which has to be of that kind."""
        packet = await self.receive()
        assert isinstance(packet, kind), packet
        return packet

    async def refused(self, code: int) -> str:
        """The next packet has to be an error with that code; answers with its text."""
        error = await self.expect(packets.Error)
        assert error.code == code, error
        return error.text

    async def ask(self, kind: type[packets.Packet], *fields: Any) -> Any:
        """Sends a request and answers with the next packet."""
        packet = kind(self.next_request(), *fields)
        self.send(packet)
        return await self.receive()

    async def hello(self, client: str = "", mode: int = 1, publisher: str = "") -> packets.Welcome:
        self.write(native.MAGIC)
        self.send(packets.Hello(self.next_request(), client, mode, publisher))
        return await self.expect(packets.Welcome)

    async def closed(self) -> bool:
        """Whether the node has closed the connection, after saying whatever it had to say."""
        async with asyncio.timeout(SECONDS):
            while await self.receive() is not None:
                pass
        return True

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


async def open_peer(port: int) -> NativePeer:
    return NativePeer(*await asyncio.open_connection("127.0.0.1", port))


@asynccontextmanager
async def open_door(broker: Broker) -> AsyncIterator[tuple[TelestoDoor, int]]:
    """The Telesto port of a broker, on any free port."""
    door = TelestoDoor(broker)
    port = await door.open("127.0.0.1", 0)
    try:
        yield door, port
    finally:
        await door.close()


def connections(door: TelestoDoor) -> int:
    """How many connections a door has."""
    return door.connections
