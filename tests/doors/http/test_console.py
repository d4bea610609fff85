"""The way to the console, to whatever listens in its place."""

import asyncio
import contextlib
import http.client
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from doors.http.peer import Node
from nuncius.broker import Broker
from nuncius.doors.http.door import HttpDoor
from nuncius.doors.http.web import console

Attend = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


@asynccontextmanager
async def in_front_of(broker: Broker, attend: Attend) -> AsyncIterator[Node]:
    """A node whose console is this."""
    attending: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attending.add(asyncio.ensure_future(attend(reader, writer)))

    async with await asyncio.start_server(begin, "127.0.0.1", 0) as server:
        door = HttpDoor(broker, console_port=server.sockets[0].getsockname()[1])
        try:
            yield Node(broker, door, await door.open("127.0.0.1", 0))
        finally:
            await door.close()
            await asyncio.gather(*attending)


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


Script = Callable[[bytes], bytes]


def scripted(script: Script, requests: list[bytes], lost: asyncio.Event | None = None) -> Attend:
    """A console that answers each request as the script says, until its client leaves."""

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                requests.append(head + await reader.readexactly(int(length or 0)))
                writer.write(script(head))
        if lost is not None:
            lost.set()
        writer.close()

    return attend


def sized(content: bytes, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n%b" % (extra, len(content), content)


ANSWERS = {
    "whole": sized(b"hello", b"x-own: a\r\nx-own: b\r\n"),
    "chunked": b"HTTP/1.1 200 OK\r\nx-own: b\r\ntransfer-encoding: chunked\r\n\r\n"
    b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("said", ANSWERS.values(), ids=ANSWERS)
async def test_requests_on_one_connection(broker: Broker, said: bytes) -> None:
    """Requests on one connection, sent ahead, whole or in chunks, are passed on in order, and their answers
    come back with their headers, whatever their framing."""
    requests: list[bytes] = []
    async with in_front_of(broker, scripted(lambda _: said, requests)) as node, asyncio.timeout(20):
        client = http.client.HTTPConnection("127.0.0.1", node.port)
        for body in (None, b"x" * 100_000, iter([b"a", b"bc"])):
            method = "GET" if body is None else "POST"
            answer = await asyncio.to_thread(_ask, client, method, body)
            assert answer == (200, b"hello", "b")
        client.close()
        peer = await node.connect()
        for _ in range(3):
            await peer.send("GET", "/console/ahead?a=%20b")
        for _ in range(3):
            assert b"HTTP/1.1 200 OK" in await peer.reader.readuntil(b"llo")
        peer.close()
    assert requests[1].endswith(b"\r\n\r\n" + b"x" * 100_000)
    assert requests[2].endswith(b"\r\n\r\nabc")
    assert b"content-length: 3\r\n" in requests[2]
    assert requests[3].startswith(b"GET /console/ahead?a=%20b HTTP/1.1\r\n")


def _ask(client: http.client.HTTPConnection, method: str, body: Any) -> tuple[int, bytes, str]:
    client.request(method, "/console/page", body, {"Cookie": "c=1"})
    answer = client.getresponse()
    return answer.status, answer.read(), (answer.headers.get_all("x-own") or [""])[-1]


async def test_an_answer_in_pieces(broker: Broker) -> None:
    """The head of an answer may arrive in pieces, after an interim answer."""

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (
            b"HTTP/1.1 103 Early\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nx-o",
            b"wn: a\r\n",
            b"\r\nthe rest",
        ):
            writer.write(piece)
            await asyncio.sleep(0)
        writer.close()

    async with in_front_of(broker, attend) as node, asyncio.timeout(20):
        peer = await node.connect()
        await peer.send("GET", "/console/")
        said = await peer.reader.read()
        assert said == b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nx-own: a\r\n\r\nthe rest"
        peer.close()


async def test_what_a_console_learns(broker: Broker) -> None:
    """A request is passed on with the visitor's address and the host that was asked for, and without the
    headers that belong to one connection."""
    requests: list[bytes] = []
    async with in_front_of(broker, scripted(lambda _: sized(b""), requests)) as node, asyncio.timeout(20):
        forged = {"X-Forwarded-User": "eve", "X-Forwarded-For": "6.6.6.6", "TE": "trailers", "Cookie": "c=1"}
        await node.call("GET", "/console/", headers={**forged, "Host": "localhost:1"})
    lines = requests[0].lower().split(b"\r\n")
    assert b"x-forwarded-host: localhost:1" in lines
    assert b"x-forwarded-for: 127.0.0.1" in lines
    assert b"cookie: c=1" in lines
    assert not any(line.startswith((b"te:", b"x-forwarded-user: eve")) for line in lines)
    assert sum(line.startswith(b"host:") for line in lines) == 1


async def test_only_the_head_of_a_page(broker: Broker) -> None:
    """HEAD has no body, and the connection goes on."""
    said = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"
    async with in_front_of(broker, scripted(lambda _: said, [])) as node, asyncio.timeout(20):
        peer = await node.connect()
        for _ in range(2):
            await peer.send("HEAD", "/console/")
            status, headers = await peer.head()
            assert (status, headers["content-length"]) == (200, "9")
        peer.close()


async def test_a_body_that_is_announced(broker: Broker) -> None:
    """A client that waits for leave to send its body gets it."""
    requests: list[bytes] = []
    async with in_front_of(broker, scripted(lambda _: sized(b"hi"), requests)) as node, asyncio.timeout(20):
        peer = await node.connect()
        await peer.send("POST", "/console/", b"", {"Expect": "100-continue", "Content-Length": "2"})
        assert (await peer.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        peer.writer.write(b"ab")
        assert (await peer.answer()).content == b"hi"
        peer.close()
    assert requests[0].endswith(b"ab")


async def test_an_answer_that_ends_with_its_connection(broker: Broker) -> None:
    """An answer without a length arrives whole; so does the request for more."""

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nto the end")
        writer.close()

    async with in_front_of(broker, attend) as node, asyncio.timeout(20):
        client = http.client.HTTPConnection("127.0.0.1", node.port)
        for _ in range(2):
            assert (await asyncio.to_thread(_ask, client, "GET", None))[:2] == (200, b"to the end")
        client.close()


async def test_a_visitor_who_leaves(broker: Broker) -> None:
    """A request whose client has gone is not waited for any longer."""
    requests: list[bytes] = []
    lost = asyncio.Event()
    begun = b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nx"
    async with in_front_of(broker, scripted(lambda _: begun, requests, lost)) as node, asyncio.timeout(20):
        peer = await node.connect()
        await peer.send("GET", "/console/")
        await peer.reader.readuntil(b"x")
        peer.close()
        await lost.wait()


async def test_a_visitor_who_reads_slowly(broker: Broker) -> None:
    """A large answer arrives whole, however slowly it is read."""
    large = b"y" * (16 << 20)
    async with in_front_of(broker, scripted(lambda _: sized(large), [])) as node, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port, limit=1 << 16)
        writer.write(b"GET /console/ HTTP/1.1\r\nhost: t\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        received = 0
        while received < len(large):
            received += (await reader.read(1 << 20)).count(b"y")
        writer.close()
    assert received == len(large)


async def test_a_console_that_is_silent(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A visitor is told in the end that the console did not start."""
    monkeypatch.setattr(console, "START_SECONDS", 0.1)
    lost = asyncio.Event()
    async with in_front_of(broker, scripted(lambda _: b"", [], lost)) as node, asyncio.timeout(20):
        assert (await node.get("/console/")).status == 503
        await lost.wait()


async def test_a_live_page(broker: Broker) -> None:
    """Messages of a WebSocket are passed on both ways, text as text and bytes as bytes."""

    async def echo(socket: ServerConnection) -> None:
        async for message in socket:
            await socket.send(message)

    async with serve(echo, "127.0.0.1", 0) as server:
        door = HttpDoor(broker, console_port=server.sockets[0].getsockname()[1])
        port = await door.open("127.0.0.1", 0)
        async with asyncio.timeout(20), connect(f"ws://127.0.0.1:{port}/console/live?x=1") as page:
            for message in ("text", b"bytes", "x" * 200_000):
                await page.send(message)
                assert await page.recv() == message
        await door.close()
