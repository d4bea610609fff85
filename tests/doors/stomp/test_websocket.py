"""STOMP over WebSocket, at /stomp of the HTTP port."""

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import websockets
from websockets.asyncio.client import ClientConnection

from nuncius.broker import Broker
from nuncius.broker.model import Letter
from nuncius.doors.http.door import HttpDoor
from nuncius.doors.stomp.door import StompDoor
from racing import until

CONNECT = "CONNECT\naccept-version:1.2\nhost:test\n\n\0"
MODULES = Path(os.environ.get("NUNCIUS_NODE_MODULES", Path(__file__).parents[3] / ".node" / "node_modules"))

needs_stompjs = pytest.mark.skipif(
    shutil.which("node") is None or not MODULES.exists(),
    reason="there is no Node here, or @stomp/stompjs is not installed; .ci/run fetches it",
)


@pytest.fixture
async def stomp(broker: Broker) -> AsyncIterator[StompDoor]:
    door = StompDoor(broker)
    yield door
    await door.close()


@pytest.fixture
async def url(broker: Broker, stomp: StompDoor) -> AsyncIterator[str]:
    door = HttpDoor(broker, (stomp.over_websocket(),))
    port = await door.open("127.0.0.1", 0)
    yield f"ws://127.0.0.1:{port}/stomp"
    await stomp.close()
    await door.close()


async def receive(socket: ClientConnection) -> str:
    async with asyncio.timeout(60):
        message = await socket.recv()
    assert isinstance(message, str)
    return message


async def until_closed(socket: ClientConnection) -> None:
    with contextlib.suppress(websockets.ConnectionClosed):
        while True:
            await receive(socket)


async def test_a_conversation(url: str) -> None:
    """Frames go both ways; the subprotocol is the best one offered."""
    async with websockets.connect(url, subprotocols=["v10.stomp", "v12.stomp"]) as socket:  # type: ignore[list-item]
        assert socket.subprotocol == "v12.stomp"
        await socket.send(CONNECT)
        assert (await receive(socket)).startswith("CONNECTED\n")
        await socket.send("SUBSCRIBE\nid:0\ndestination:/topic/news\nreceipt:1\n\n\0")
        assert "receipt-id:1" in await receive(socket)
        await socket.send("SEND\ndestination:/topic/news\n\nhello\0")
        message = await receive(socket)
        assert message.startswith("MESSAGE\n")
        assert message.endswith("\n\nhello\0")


async def test_any_fragmentation(url: str) -> None:
    """A frame may come in several messages, and several frames in one; text and binary alike."""
    async with websockets.connect(url) as socket:
        for byte in CONNECT.encode():
            await socket.send(bytes([byte]))
        assert (await receive(socket)).startswith("CONNECTED\n")
        pair = "SUBSCRIBE\nid:0\ndestination:/topic/news\nreceipt:1\n\n\0SEND\ndestination:/topic/news\n\nx\0"
        await socket.send(pair)
        said = await receive(socket)
        while "MESSAGE" not in said:
            said += await receive(socket)
        assert "receipt-id:1" in said


async def test_bytes_that_are_no_text(url: str, broker: Broker) -> None:
    """What is not UTF-8 comes in a binary message."""
    queue = await broker.queues.ensure("jobs")
    stored: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    broker.queues.put_soon(queue.queue_id, [Letter(b"\xff\x00\xfe")], stored.set_result)
    await stored
    async with websockets.connect(url) as socket:
        await socket.send(CONNECT)
        await receive(socket)
        await socket.send("SUBSCRIBE\nid:0\ndestination:/queue/jobs\n\n\0")
        async with asyncio.timeout(60):
            message = await socket.recv()
        assert isinstance(message, bytes)
        assert message.endswith(b"\n\n\xff\x00\xfe\0")


async def test_a_frame_a_message(url: str, broker: Broker) -> None:
    """Every frame from the node is a message of its own, however many go out together."""
    bodies = [b"one", b"\0\n\n\0", b"\xff", b"", b"MESSAGE\ncontent-length:1\n\n"]
    await broker.topics.publish("news", bodies)
    async with websockets.connect(url) as socket:
        await socket.send(CONNECT)
        await receive(socket)
        await socket.send("SUBSCRIBE\nid:0\ndestination:/topic/news\nstart:earliest\n\n\0")
        frames: list[bytes] = []
        async with asyncio.timeout(60):
            while len(frames) < len(bodies):
                message = await socket.recv()
                assert isinstance(message, bytes) == (len(frames) == bodies.index(b"\xff"))
                frames.append(message if isinstance(message, bytes) else message.encode())
        for frame, body in zip(frames, bodies, strict=True):
            assert frame.startswith(b"MESSAGE\n")
            assert frame.endswith(b"\ncontent-length:%d\n\n%b\0" % (len(body), body))


async def test_the_client_goes(url: str, broker: Broker, stomp: StompDoor) -> None:
    """A connection that breaks off is forgotten, and what it had not acknowledged is kept for others."""
    queue = await broker.queues.ensure("jobs")
    stored: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    broker.queues.put_soon(queue.queue_id, [Letter(b"x")], stored.set_result)
    await stored
    async with websockets.connect(url) as socket:
        await socket.send(CONNECT)
        await receive(socket)
        await socket.send("SUBSCRIBE\nid:0\ndestination:/queue/jobs\nack:client\n\n\0")
        assert "MESSAGE" in await receive(socket)
        socket.transport.abort()
    await until(lambda: stomp.connections == 0)
    await until(broker.failures)
    assert [failure.destination for failure in await broker.failures()] == ["/queue/jobs"]


async def test_a_client_that_does_not_read(url: str, broker: Broker, stomp: StompDoor) -> None:
    """The node stops handing over to who does not read, instead of keeping everything in memory."""
    async with websockets.connect(url, max_queue=1, max_size=None) as socket:
        await socket.send(CONNECT)
        await receive(socket)
        await socket.send("SUBSCRIBE\nid:0\ndestination:/topic/news\nreceipt:1\n\n\0")
        await receive(socket)
        (wire,) = stomp.wires
        for _ in range(40):
            await broker.topics.publish("news", [bytes(1 << 20)])
        await until(lambda: not wire._writable.is_set())  # noqa: SLF001


async def test_the_door_closes(url: str, stomp: StompDoor) -> None:
    """When the node stops, the connection is closed from its side."""
    async with websockets.connect(url) as socket:
        await socket.send(CONNECT)
        await receive(socket)
        await stomp.close()
        await until_closed(socket)


async def run(*command: str) -> list[str]:
    """What Node prints."""
    process = await asyncio.create_subprocess_exec(
        "node", *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode().splitlines()


@needs_stompjs
async def test_stompjs(url: str) -> None:
    """@stomp/stompjs connects, sends, receives text and bytes, acknowledges, and says goodbye."""
    printed = await run(str(Path(__file__).with_name("conversation.mjs")), url, str(MODULES))
    assert printed[:2] == ["version 1.2 v12.stomp", "one grüße 000102ff00"]


@needs_stompjs
async def test_the_page(url: str, tmp_path: Path) -> None:
    """What docs/doors/stomp.md has for browsers runs and prints what its comment says."""
    page = Path(__file__).parents[3] / "docs" / "doors" / "stomp.md"
    (block,) = re.findall(r"^```js\n(.*?)^// (.*?)\n```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    script = tmp_path / "page.mjs"
    script.write_text(block[0].replace("ws://127.0.0.1:5000/stomp", url))
    (tmp_path / "node_modules").symlink_to(MODULES)
    (tmp_path / "browser.cjs").write_text("globalThis.WebSocket = require('ws').WebSocket;")
    assert await run("--require", str(tmp_path / "browser.cjs"), str(script)) == [block[1]]


async def test_a_fault_of_ours(url: str, stomp: StompDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that fails by a fault of ours has ended for the door, too; nothing of it stays."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    async with websockets.connect(url) as socket:
        await until(lambda: stomp.wires)
        (wire,) = stomp.wires
        monkeypatch.setattr(type(wire.session), "received", fail)
        await socket.send(CONNECT)
        await until_closed(socket)
        await until(lambda: not stomp.wires)
