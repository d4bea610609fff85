"""A node with the HTTP port open, in process, and clients that speak to it as they like."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from node_thread import in_a_thread
from nuncius.broker import Broker
from nuncius.broker.limits import Limits
from nuncius.cluster.dialects import QueueDialect
from nuncius.doors.http.door import HttpDoor

SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(slots=True)
class Node:
    broker: Broker
    door: HttpDoor
    port: int

    async def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request on a connection of its own; a body that is no bytes is sent as JSON."""
        peer = await self.connect()
        try:
            await peer.send(method, path, body, headers)
            return await peer.answer()
        finally:
            peer.close()

    async def get(self, path: str, body: object = None, **headers: str) -> Answer:
        return await self.call("GET", path, body, named(headers))

    async def post(self, path: str, body: object = None, **headers: str) -> Answer:
        return await self.call("POST", path, body, named(headers))

    async def put(self, path: str, body: object = None) -> Answer:
        return await self.call("PUT", path, body)

    async def delete(self, path: str, body: object = None) -> Answer:
        return await self.call("DELETE", path, body)

    async def connect(self) -> "Peer":
        return Peer(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24))


def named(headers: Mapping[str, str]) -> dict[str, str]:
    """Underscores in names stand for hyphens."""
    return {name.replace("_", "-"): value for name, value in headers.items()}


class Peer:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> None:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        own = {name.title(): value for name, value in (headers or {}).items()}
        sent = {"Host": "test", "Content-Length": str(len(content)), **own}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items())]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await self.writer.drain()

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(SECONDS):
            text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.strip().split("\r\n")
        pairs = (line.partition(": ") for line in lines)
        return int(first.split()[1]), {name.lower(): value for name, _, value in pairs}

    async def answer(self) -> Answer:
        status, headers = await self.head()
        async with asyncio.timeout(SECONDS):
            content = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(status, headers, content)

    async def event(self) -> dict[str, str]:
        """The next server-sent event of a stream that has begun; comments are passed over."""
        while True:
            async with asyncio.timeout(SECONDS):
                lines = (await self._chunked_line_block()).split("\n")
            fields = dict(line.split(": ", 1) for line in lines if line and not line.startswith(":"))
            if fields:
                return fields

    async def _chunked_line_block(self) -> str:
        while "\n\n" not in self._text:
            size = int(await self.reader.readline(), 16)
            if size == 0:
                raise EOFError
            self._text += (await self.reader.readexactly(size)).decode()
            await self.reader.readline()
        block, _, self._text = self._text.partition("\n\n")
        return block

    _text = ""

    def close(self) -> None:
        self.writer.close()


@asynccontextmanager
async def running_node(
    dsn: str,
    *,
    limits: Limits | None = None,
    threshold: int = 1_000_000,
    patience: float = 20,
    allowed_origins: Collection[str] = (),
    dialect: QueueDialect = QueueDialect.AUTO,
) -> AsyncIterator[Node]:
    async with Broker(dsn, limits=limits, patience=patience) as broker:
        door = HttpDoor(
            broker, partition_threshold=threshold, allowed_origins=allowed_origins, dialect=dialect
        )
        try:
            yield Node(broker, door, await door.open("127.0.0.1", 0))
        finally:
            await door.close()


def node_in_a_thread(dsn: str, threshold: int = 1_000_000) -> AbstractContextManager[int]:
    """The port of a node that runs until the end of the block, for clients that block."""
    return in_a_thread(running_node(dsn, threshold=threshold))
