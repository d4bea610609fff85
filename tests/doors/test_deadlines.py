"""Deadlines at every door: for the first complete request, and in the middle of one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from doors.unreading import (
    AFTER_AN_ANSWER,
    NATIVE_HELLO,
    STOMP_CONNECT,
    ZMTP_READY,
    Ports,
    framed,
    http_get,
    upgrade_to_stomp,
)
from nuncius.broker import Broker
from nuncius.broker.limits import Limits
from nuncius.cluster.link.server import LinkServer
from nuncius.doors.http.door import HttpDoor
from nuncius.doors.stomp.door import StompDoor
from nuncius.doors.telesto import table
from nuncius.doors.telesto.codec import Codec
from nuncius.doors.telesto.table import ClientMode, Dialect
from nuncius.doors.tribbler.door import TribblerDoor
from nuncius.doors.tribbler.rpc_codec import CONNECT
from nuncius.doors.zeromq.door import ZeromqDoor
from nuncius.doors.zeromq.zmtp_codec import GREETING, encode
from nuncius.node.shared_port import TelestoDoor
from nuncius.wire import codec as native
from nuncius.wire import packets

SHORT = 0.2  # seconds
LONG = 3600.0

REGISTER = Codec(Dialect.REPORT).encode(table.RegisterClient(1, "ann", ClientMode.FULL))
IO_ERROR = b"\0\x09\0\x05\0\0\0\0\x02"  # the report's dialect has no words for it
SLIM = b"CONNECT\nlogin:me\n\n\0"
CALL = b'{"method":"StorageRPC.Get","params":[{"Key":"k"}],"id":1}'
POST = b"POST /v1/topics/t/messages/raw HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
WEBSOCKET = upgrade_to_stomp() + AFTER_AN_ANSWER


@dataclass(frozen=True)
class Node(Ports):
    link: int
    broker: Broker


@asynccontextmanager
async def running(dsn: str, limits: Limits) -> AsyncIterator[Node]:
    async with Broker(dsn, limits=limits) as broker:
        stomp = StompDoor(broker)
        doors = {
            "http": HttpDoor(broker, (stomp.over_websocket(),)),
            "telesto": TelestoDoor(broker),
            "stomp": stomp,
            "zeromq": ZeromqDoor(broker),
            "tribbler": TribblerDoor(broker),
            "link": LinkServer(broker),
        }
        ports = {name: await door.open("127.0.0.1", 0) for name, door in doors.items()}  # type: ignore[attr-defined]
        try:
            yield Node(**ports, broker=broker)
        finally:
            for door in reversed(doors.values()):
                await door.close()  # type: ignore[attr-defined]


@pytest.fixture
async def impatient(dsn: str) -> AsyncIterator[Node]:
    """A node that waits only a moment for a greeting."""
    async with running(dsn, replace(Limits(), greeting_seconds=SHORT, progress_seconds=LONG)) as node:
        yield node


@pytest.fixture
async def node(dsn: str) -> AsyncIterator[Node]:
    """A node that waits only a moment in the middle of a request."""
    async with running(dsn, replace(Limits(), greeting_seconds=LONG, progress_seconds=SHORT)) as node:
        yield node


class Client:
    """A connection that sends bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        first, _, rest = data.partition(AFTER_AN_ANSWER)
        self.writer.write(first)
        if rest or AFTER_AN_ANSWER in data:
            await self._reader.readuntil(b"\r\n\r\n")
            self.writer.write(rest)

    async def said(self) -> bytes:
        """What the node says until it closes the connection."""
        async with asyncio.timeout(30):
            return await self._reader.read()

    async def hears(self, words: bytes) -> bytes:
        async with asyncio.timeout(30):
            return await self._reader.readuntil(words)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield client
    finally:
        client.writer.close()


@pytest.mark.parametrize(
    ("door", "data", "last_words"),
    [
        ("telesto", b"", b""),
        ("telesto", b"\0", b""),
        ("telesto", REGISTER[:-1], IO_ERROR),
        ("telesto", native.MAGIC, b"in time"),
        ("telesto", NATIVE_HELLO[:-1], b"in time"),
        ("stomp", b"", b"in time"),
        ("stomp", STOMP_CONNECT[:-1], b"in time"),
        ("stomp", b"\n\n\n", b"in time"),
        ("zeromq", b"", b"in time"),
        ("zeromq", GREETING[:20], b"in time"),
        ("zeromq", GREETING, b"in time"),
        ("tribbler", b"", b""),
        ("tribbler", CONNECT[:-1], b""),
        ("tribbler", CALL[:-1], b""),
        ("http", b"", b"408"),
        ("http", http_get("/livez")[:-2], b"408"),
        ("http", WEBSOCKET, b"in time"),
    ],
)
async def test_a_greeting_that_does_not_come(
    impatient: Node, door: str, data: bytes, last_words: bytes
) -> None:
    """A connection that says nothing complete in time is told so, where its protocol can, and closed."""
    async with connected(getattr(impatient, door)) as client:
        await client.send(data)
        assert last_words in await client.said()


@pytest.mark.parametrize(
    ("door", "greeting", "half", "last_words"),
    [
        ("telesto", REGISTER, REGISTER[:-1], IO_ERROR),
        ("telesto", NATIVE_HELLO, native.encode(packets.Ping(2))[:-1], b"did not go on"),
        ("stomp", STOMP_CONNECT, b"SEND\ndestination:a\n", b"did not go on"),
        ("stomp", SLIM, b"SEND\ntopic:a\n", b"did not go on"),
        ("zeromq", GREETING + ZMTP_READY, encode([b"", b"p ann news 1 text"])[:-1], b"did not go on"),
        ("zeromq", GREETING + ZMTP_READY, encode([b"", b""])[:2], b"did not go on"),
        ("tribbler", CONNECT, b"\x20", b""),
        ("tribbler", CALL, CALL[:-1], b""),
        ("http", b"", POST + b"1234", b"408"),
        ("http", http_get("/livez") + AFTER_AN_ANSWER, POST[:-2], b"408"),
        ("http", WEBSOCKET + framed(STOMP_CONNECT), framed(b"SEND\ndestination:a\n"), b"did not go on"),
        ("http", WEBSOCKET + framed(STOMP_CONNECT), framed(b"\n")[:-1], b""),
        ("link", b"", b"\0\0\0\x09\x92", b""),
    ],
)
async def test_half_a_request(node: Node, door: str, greeting: bytes, half: bytes, last_words: bytes) -> None:
    """A connection that stops in the middle of a request is told so, where its protocol can, and closed."""
    async with connected(getattr(node, door)) as client:
        await client.send(greeting)
        if greeting.startswith(WEBSOCKET):
            await client.hears(b"CONNECTED")
        client.writer.write(half)
        assert last_words in await client.said()


@pytest.mark.parametrize(
    ("door", "greeting", "asked", "answer"),
    [
        ("telesto", REGISTER, Codec(Dialect.REPORT).encode(table.Ping(7)), b"\x07"),
        ("telesto", NATIVE_HELLO, native.encode(packets.Ping(7)), b"\x07"),
        ("stomp", STOMP_CONNECT, b"SEND\ndestination:/topic/a\nreceipt:7\n\n\0", b"receipt-id:7"),
        ("zeromq", GREETING + ZMTP_READY, encode([b"", b"nonsense"]), b"\x01i"),
        ("tribbler", CONNECT, b"\xf0", b""),
        ("tribbler", CALL, CALL, b'"result"'),
        (
            "http",
            WEBSOCKET + framed(STOMP_CONNECT),
            framed(b"SEND\ndestination:/topic/a\nreceipt:7\n\n\0"),
            b":7",
        ),
    ],
)
async def test_idle_connections(dsn: str, door: str, greeting: bytes, asked: bytes, answer: bytes) -> None:
    """A connection that has said a whole greeting may be silent for longer than any deadline."""
    limits = replace(Limits(), greeting_seconds=SHORT, progress_seconds=SHORT)
    async with running(dsn, limits) as node, connected(getattr(node, door)) as quiet:
        await quiet.send(greeting)
        for _ in range(2):  # others that came later are out of time
            async with connected(node.stomp) as silent:
                await silent.said()
        quiet.writer.write(asked)
        await quiet.hears(answer) if answer else await quiet.said()
