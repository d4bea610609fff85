"""A node with the ZeroMQ door open; real ZeroMQ sockets, and raw connections, to talk to it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass

import zmq
import zmq.asyncio

from node_thread import in_a_thread
from nuncius.broker import Broker
from nuncius.broker.limits import Limits
from nuncius.doors.zeromq.door import ZeromqDoor
from nuncius.doors.zeromq.zmtp_codec import GREETING, READY, encode

SECONDS = 60.0
READY_OF_DEALER = b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06DEALER"


@dataclass(frozen=True, slots=True)
class Node:
    broker: Broker
    door: ZeromqDoor
    port: int

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    async def at_rest(self) -> None:
        """Returns when the node owes nobody an answer any more."""
        async with asyncio.timeout(SECONDS):
            while self.broker.pressure.level:  # noqa: ASYNC110  (a number, not an event; nothing is timed)
                await asyncio.sleep(0)


@asynccontextmanager
async def running_node(
    dsn: str, *, host: str = "127.0.0.1", max_connections: int = 1000, max_body: int = 8 << 20
) -> AsyncIterator[Node]:
    async with Broker(dsn, limits=Limits(max_body=max_body), patience=20) as broker:
        door = ZeromqDoor(broker, max_connections)
        port = await door.open(host, 0)
        try:
            yield Node(broker, door, port)
        finally:
            await door.close()


class Peer:
    """A ZeroMQ socket. Text goes and comes as one frame, a list of fields as one frame each."""

    def __init__(self, node: Node, kind: int = zmq.REQ) -> None:
        self._context = zmq.asyncio.Context()
        self.socket = self._context.socket(kind)
        self.socket.linger = 0
        self.socket.connect(node.url)

    async def send(self, *frames: bytes) -> None:
        await self.socket.send_multipart(frames)

    async def receive(self) -> list[bytes]:
        async with asyncio.timeout(SECONDS):
            frames: list[bytes] = await self.socket.recv_multipart()
            return frames

    async def ask(self, text: str) -> str:
        await self.send(text.encode())
        (answer,) = await self.receive()
        return answer.decode()

    async def ask_fields(self, *fields: str | bytes) -> list[bytes]:
        await self.send(*(field.encode() if isinstance(field, str) else field for field in fields))
        return await self.receive()

    def close(self) -> None:
        self._context.destroy(linger=0)


@asynccontextmanager
async def connected(node: Node, kind: int = zmq.REQ) -> AsyncIterator[Peer]:
    peer = Peer(node, kind)
    try:
        yield peer
    finally:
        peer.close()


class Raw:
    """A TCP connection that speaks ZMTP, or something else, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *messages: Sequence[bytes]) -> None:
        """All of them in one write."""
        self.writer.write(b"".join(map(encode, messages)))

    async def read(self, size: int) -> bytes:
        async with asyncio.timeout(SECONDS):
            return await self.reader.readexactly(size)

    async def greet(self) -> None:
        self.writer.write(GREETING + READY_OF_DEALER)
        assert await self.read(len(GREETING + READY)) == GREETING + READY

    async def until_closed(self) -> bytes:
        """What the node says before it closes the connection."""
        said = b""
        async with asyncio.timeout(SECONDS):
            with contextlib.suppress(ConnectionResetError):
                while data := await self.reader.read(1 << 16):
                    said += data
        return said

    async def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def raw(node: Node, *, greeted: bool = True) -> AsyncIterator[Raw]:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # else the kernel reads for us
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", node.port))
    connection = Raw(*await asyncio.open_connection(sock=client))
    try:
        if greeted:
            await connection.greet()
        yield connection
    finally:
        connection.writer.transport.abort()


def node_in_a_thread(dsn: str, host: str = "127.0.0.1") -> AbstractContextManager[int]:
    """The port of a node that runs until the end of the block, for clients that block."""
    return in_a_thread(running_node(dsn, host=host))
