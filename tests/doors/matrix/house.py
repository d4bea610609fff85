"""One broker with every listener open, and the connections through which a test uses them all."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import zmq

from doors.http import peer as http_node
from doors.stomp import peer as stomp_node
from doors.zeromq import peer as zeromq_node
from nuncius.broker import Broker
from nuncius.client import AsyncClient
from nuncius.doors.http.door import HttpDoor
from nuncius.doors.stomp.door import StompDoor
from nuncius.doors.zeromq.door import ZeromqDoor
from nuncius.node.shared_port import TelestoDoor
from nuncius.store.driver import Connection


@dataclass(slots=True)
class House:
    """Everything that reaches one broker. Connections live until the end of the test."""

    broker: Broker
    sql: Connection
    native: AsyncClient
    http: http_node.Node
    stomp: stomp_node.Node
    zeromq: zeromq_node.Node
    telesto: TelestoDoor
    telesto_port: int
    closing: AsyncExitStack
    counts: dict[str, int] = field(default_factory=dict)

    async def stomp_peer(self) -> stomp_node.Peer:
        return await self.closing.enter_async_context(stomp_node.connected(self.stomp))

    async def slim_peer(self) -> stomp_node.Peer:
        """A connection that speaks the slim dialect of the STOMP report."""
        peer = await self.closing.enter_async_context(stomp_node.stranger(self.stomp))
        peer.write(b"CONNECT\nlogin:slim\n\n\0")
        assert await peer.read(12) == b"CONNECTED\n\n\0"
        return peer

    async def zeromq_peer(self) -> zeromq_node.Peer:
        return await self.closing.enter_async_context(zeromq_node.connected(self.zeromq, zmq.REQ))

    def next_count(self, publisher: str) -> int:
        """Number the next message of a publisher that counts by itself."""
        self.counts[publisher] = self.counts.get(publisher, 0) + 1
        return self.counts[publisher]

    async def call(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Send an HTTP request that has to succeed. Return the JSON, or the bytes of a raw answer."""
        answer = await self.http.call(method, path, body, http_node.named(headers))
        assert answer.status < 300, (method, path, answer)
        with contextlib.suppress(ValueError):
            return answer.json if "json" in answer.headers.get("content-type", "") else answer.content
        return answer.content


@asynccontextmanager
async def open_house(dsn: str) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(Broker(dsn, patience=20))
        doors = (HttpDoor(broker), StompDoor(broker), ZeromqDoor(broker, 1000), TelestoDoor(broker, 0.01))
        ports = []
        for door in doors:
            stack.push_async_callback(door.close)
            ports.append(await door.open("127.0.0.1", 0))
        http_door, stomp_door, zeromq_door, telesto_door = doors
        sql = await asyncpg.connect(dsn)
        stack.push_async_callback(sql.close)
        native = await stack.enter_async_context(AsyncClient(f"nuncius://127.0.0.1:{ports[3]}", timeout=20))
        yield House(
            broker,
            sql,
            native,
            http_node.Node(broker, http_door, ports[0]),
            stomp_node.Node(broker, stomp_door, ports[1], ports[3]),
            zeromq_node.Node(broker, zeromq_door, ports[2]),
            telesto_door,
            ports[3],
            await stack.enter_async_context(AsyncExitStack()),
        )
