"""A node with the Telesto port open, and a peer that speaks one of the two framings to it, byte by byte."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from nuncius.broker import Broker
from nuncius.doors.telesto import table
from nuncius.doors.telesto.codec import Codec, Event
from nuncius.doors.telesto.table import (
    Answer,
    ClientMode,
    Dialect,
    Error,
    ErrorType,
    Message,
    Packet,
    ReadMode,
    Request,
)
from nuncius.node.shared_port import TelestoDoor

LONG = 120.0  # seconds to hold a read: whoever waits that long has not been woken


@dataclass(frozen=True, slots=True)
class Node:
    broker: Broker
    door: TelestoDoor
    port: int


@asynccontextmanager
async def running_node(dsn: str, hold: float = 0.01, patience: float = 30.0) -> AsyncIterator[Node]:
    async with Broker(dsn, patience=patience) as broker:
        door = TelestoDoor(broker, hold)
        port = await door.open("127.0.0.1", 0)
        try:
            yield Node(broker, door, port)
        finally:
            await door.close()


class Peer:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dialect: Dialect) -> None:
        self.reader = reader
        self.writer = writer
        self.codec = Codec(dialect, Answer)
        self.client_id = 0
        self._ids = itertools.count(1)
        self._events: list[Event] = []

    def send(self, *packets: Request) -> None:
        """All of them in one write."""
        self.writer.write(b"".join(map(self.codec.encode, packets)))

    async def answer(self) -> Event:
        while not self._events:
            data = await self.reader.read(65536)
            if not data:
                raise EOFError
            self._events = self.codec.receive(data)
        return self._events.pop(0)

    async def ask(self, packet: Request) -> Event:
        self.send(packet)
        answer = await self.answer()
        assert isinstance(answer, Packet)
        assert answer.packet_id == packet.packet_id
        return answer

    async def error(self, packet: Request) -> tuple[int, str]:
        """The type and the details of the Error that answers this."""
        answer = await self.ask(packet)
        assert isinstance(answer, Error), answer
        return answer.error_type, answer.details

    async def register(self, name: str, mode: int = ClientMode.FULL) -> int:
        answer = await self.ask(table.RegisterClient(self.id, name, mode))
        assert isinstance(answer, table.RegisterClientResponse), answer
        self.client_id = answer.client_id
        return self.client_id

    async def create(self, name: str) -> int:
        answer = await self.ask(table.CreateQueue(self.id, name))
        assert isinstance(answer, table.CreateQueueResponse), answer
        return answer.queue_id

    async def put(self, queue_id: int, text: str, *others: int, **fields: int) -> None:
        answer = await self.ask(table.PutMessage(self.id, message(queue_id, text, **fields), list(others)))
        assert isinstance(answer, table.Success), answer

    async def take(self, queue_id: int, mode: int = ReadMode.PRIORITY, sender: int = 0) -> Message:
        return one(await self.ask(table.ReadMessage(self.id, queue_id, sender, mode)))

    async def finds_nothing(self, queue_id: int) -> bool:
        error_type, _ = await self.error(table.ReadMessage(self.id, queue_id, 0, ReadMode.TIME))
        return error_type == ErrorType.NO_MESSAGES_RETRIEVED

    @property
    def id(self) -> int:
        return next(self._ids)

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


@asynccontextmanager
async def connected(node: Node, dialect: Dialect, name: str = "") -> AsyncIterator[Peer]:
    """A connection, and the client of that name registered on it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    peer = Peer(reader, writer, dialect)
    try:
        if name:
            await peer.register(name)
        yield peer
    finally:
        writer.close()


def message(queue_id: int, text: str, **fields: int) -> Message:
    values = {"sender": 0, "receiver": 0, "context": 0, "priority": 5, **fields}
    return Message(
        0, queue_id, values["sender"], values["receiver"], values["context"], values["priority"], 0, text
    )


def one(answer: Event) -> Message:
    assert isinstance(answer, table.ReadMessageResponse), answer
    (found,) = answer.messages
    return found


async def caught_up(node: Node, dialect: Dialect = Dialect.DEPLOYED) -> None:
    """Returns when the node has seen what was sent to it before: it has answered somebody else since."""
    async with connected(node, dialect) as other:
        for _ in range(3):
            await other.ask(table.Ping(1))


async def at_rest(node: Node) -> None:
    """Returns when the node owes nobody an answer any more."""
    async with asyncio.timeout(LONG):
        while node.broker.pressure.level:  # noqa: ASYNC110  (a number, not an event; nothing is timed)
            await asyncio.sleep(0)
