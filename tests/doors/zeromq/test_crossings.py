"""Crossings: what goes in through one door comes out through another, from the same topics."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from doors.zeromq.peer import Node, Peer
from native_peer import open_door
from nuncius.broker import Broker
from nuncius.client import AsyncClient
from nuncius.doors.http.door import HttpDoor
from nuncius.doors.stomp.door import StompDoor
from nuncius.store.driver import Connection


@pytest.fixture
async def native(node: Node) -> AsyncIterator[AsyncClient]:
    """A native client of the same node."""
    async with open_door(node.broker) as (_, port), AsyncClient(f"nuncius://127.0.0.1:{port}") as client:
        yield client


async def test_to_native(ann: Peer, native: AsyncClient) -> None:
    """What is put by ZeroMQ is read by a native subscriber; the answer counts it."""
    subscription = await native.subscribe("news", "native")
    assert await ann.ask("p bob news 1 hello") == "a 1"
    (entry,) = await subscription.next_batch(20)
    assert (entry.text, entry.offset) == ("hello", 0)


async def test_from_native(ann: Peer, native: AsyncClient) -> None:
    """What a native client publishes is got by ZeroMQ, by one that waits as by one that asks later."""
    await ann.ask("s ann news")
    await ann.send(b"g ann news 0 wait=30")
    await native.publish("news", "hello", key="k", headers={"a": "b"})
    assert await ann.receive() == [b"a 0 hello"]
    await native.publish_batch("news", [f"{n}" for n in range(3)])
    assert [await ann.ask(f"g ann news {n}") for n in (1, 2, 3)] == ["a 3 0", "a 3 1", "a 3 2"]


async def test_publishers_do_not_collide(ann: Peer, native: AsyncClient, connection: Connection) -> None:
    """A ZeroMQ publisher has a count of its own, whatever publishers of other doors are called."""
    await connection.fetch("select nuncius.publish('news', 'x'::text, publisher => 'bob', count => 7)")
    await native.publish("news", "y")
    assert await ann.ask("p bob news 1 z") == "a 0"


async def test_one_subscription(ann: Peer, native: AsyncClient) -> None:
    """A subscriber is the same through both doors: what one confirms, the other need not."""
    await ann.ask("s ann news")
    await native.publish_batch("news", ["a", "b", "c"])
    async with await native.subscribe("news", "ann") as subscription:
        first, second, _ = await subscription.next_batch(20)
        assert (first.text, second.text) == ("a", "b")
        await subscription.confirm(second)
    assert await ann.ask("s ann news resume") == "e as 1"
    assert await ann.ask("g ann news 2") == "a 2 c"
    await ann.ask("g ann news 3")
    (state,) = [each for each in await native.subscriptions("news") if each.subscriber == "ann"]
    assert state.lag == 0


async def test_several_partitions(ann: Peer, native: AsyncClient) -> None:
    """A topic with several partitions has dense ids here."""
    await native.create_topic("wide", partitions=3)
    await ann.ask("s ann wide")
    await native.publish_batch("wide", [f"{n}" for n in range(30)], keys=[f"{n}" for n in range(30)])
    got = [(await ann.ask(f"g ann wide {n}")).split() for n in range(30)]
    assert {text for _, _, text in got} == {f"{n}" for n in range(30)}
    assert {latest for _, latest, _ in got} == {"29"}
    assert await ann.ask("p bob wide 1 more") == "a 1"
    assert await ann.ask("g ann wide 30") == "a 30 more"


class Stomp:
    """A STOMP 1.2 connection, frame by frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, frame: str) -> str:
        """Sends a frame; answers with the next one."""
        self._writer.write(frame.encode() + b"\0")
        return await self.next()

    async def next(self) -> str:
        async with asyncio.timeout(60):
            return (await self._reader.readuntil(b"\0")).decode().strip("\n\0")

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def stomp(broker: Broker) -> AsyncIterator[Stomp]:
    door = StompDoor(broker)
    port = await door.open("127.0.0.1", 0)
    connection = Stomp(*await asyncio.open_connection("127.0.0.1", port))
    try:
        welcome = await connection.ask("CONNECT\naccept-version:1.2\nhost:x\n\n")
        assert welcome.startswith("CONNECTED")
        yield connection
    finally:
        connection.close()
        await door.close()


async def test_stomp(node: Node, ann: Peer) -> None:
    """What is put by ZeroMQ is read by STOMP, and the reverse."""
    await ann.ask("s ann news")
    async with stomp(node.broker) as other:
        subscribed = await other.ask("SUBSCRIBE\nid:1\ndestination:/topic/news\nreceipt:r\n\n")
        assert subscribed.startswith("RECEIPT")
        assert await ann.ask("p bob news 1 from zeromq") == "a 2"
        assert (await other.next()).endswith("\n\nfrom zeromq")
        frames = [
            await other.ask("SEND\ndestination:/topic/news\nreceipt:s\n\nfrom stomp"),
            await other.next(),
        ]
        assert {frame.split("\n")[0] for frame in frames} == {"RECEIPT", "MESSAGE"}
    assert await ann.ask("g ann news 1 wait=20") == "a 1 from stomp"


def call(port: int, path: str, body: object) -> Any:
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, method="POST")
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310  (our own node)
        return json.loads(answer.read())


async def test_http(node: Node, ann: Peer) -> None:
    """What is put by ZeroMQ is read by a consumer over HTTP, and the reverse."""
    door = HttpDoor(node.broker)
    port = await door.open("127.0.0.1", 0)
    try:
        await ann.ask("s ann news")
        producer = await asyncio.to_thread(call, port, "/producer/register", {"topic": "news"})
        consumer = await asyncio.to_thread(call, port, "/consumer/register", {"topic": "news"})
        assert await ann.ask("p bob news 1 from zeromq") == "a 2"
        read = {"topic": "news", "consumer_id": consumer["consumer_id"]}
        assert (await asyncio.to_thread(call, port, "/consumer/consume", read))["message"] == "from zeromq"
        sent = {"topic": "news", "producer_id": producer["producer_id"], "message": "from http"}
        await asyncio.to_thread(call, port, "/producer/produce", sent)
        assert await ann.ask("g ann news 1 wait=20") == "a 1 from http"
    finally:
        await door.close()
