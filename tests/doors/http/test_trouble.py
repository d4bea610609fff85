"""What goes wrong: faults of ours, clients that go, nodes with too much to do."""

import asyncio
import json
import logging
import socket

import pytest

from doors.http.peer import Node
from doors.http.test_report import consume, consumer, producer
from nuncius.broker import Broker
from nuncius.broker.errors import NotAllowed
from nuncius.doors.http import events
from nuncius.doors.http.connection import http
from nuncius.doors.http.connection.http import MAX_HEAD, Corked
from nuncius.doors.http.door import HttpDoor
from nuncius.store.pressure import TOO_SLOW
from racing import until


async def test_a_fault_of_ours(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a 500 in the form of the API that was asked, the log has more, and the node lives on."""

    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(node.broker.topics, "create", fail)
        answer = await node.post("/topics", {"name": "A"})
        assert (answer.status, answer.json["status"]) == (500, "failure")
        answer = await node.post("/v1/topics", {"name": "A"})
        assert (answer.status, answer.json["error"]) == (500, "internal")
        assert "ZeroDivisionError" in caplog.text
    assert (await node.post("/topics", {"name": "A"})).status == 200


async def test_what_a_client_must_not_do(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other errors of the broker have their answers, too."""

    async def refuse(*_: object, **__: object) -> None:
        raise NotAllowed("not you")

    monkeypatch.setattr(node.broker.topics, "create", refuse)
    answer = await node.post("/topics", {"name": "A"})
    assert (answer.status, answer.json) == (400, {"status": "failure", "message": "not you"})
    answer = await node.post("/v1/topics", {"name": "A"})
    assert (answer.status, answer.json["error"]) == (403, "not_allowed")


async def test_a_body_in_pieces(node: Node) -> None:
    """It does not matter in how many pieces a body comes, or whether its length is known beforehand."""
    peer = await node.connect()
    peer.writer.write(b"POST /topics HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
    for piece in (b'{"na', b'me": ', b'"A"}'):
        peer.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await peer.writer.drain()
    peer.writer.write(b"0\r\n\r\n")
    assert (await peer.answer()).status == 200
    peer.close()


async def test_a_client_that_goes_in_the_middle(node: Node) -> None:
    """Nothing is done, nothing stays, and it is counted as what it is."""
    for sent in (b"", b'{"name"'):
        peer = await node.connect()
        peer.writer.write(b"POST /topics HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n" + sent)
        await peer.writer.drain()
        peer.writer.transport.abort()
    counts = node.door.desk.metrics.requests._counts  # noqa: SLF001
    await until(lambda: counts["http", "/topics", 499] == 2)
    assert (await node.get("/topics")).json["topics"] == []


async def test_a_client_that_goes_before_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    """What was to be written to it is dropped, and the log says nothing."""

    class Gone(asyncio.Transport):
        def is_closing(self) -> bool:
            return True

        def write(self, data: object) -> None:
            raise RuntimeError("the handler is closed")  # as uvloop has it

    Corked(Gone()).write(b"answer")
    await asyncio.sleep(0)
    assert not caplog.records


async def test_a_node_with_too_much_to_do_reads_nothing(node: Node) -> None:
    """Requests wait until it has less, and are answered then."""
    number = await producer(node)
    two = await consumer(node)
    pressure = node.broker.pressure
    pressure.add(1 << 40)
    waiting = asyncio.ensure_future(
        node.post("/producer/produce", {"topic": "A", "producer_id": number, "message": "x"})
    )
    await until(lambda: pressure._waiting)  # noqa: SLF001
    pressure.remove(1 << 40)
    assert (await waiting).status == 200
    assert (await consume(node, two)).json["message"] == "x"


@pytest.mark.parametrize("path", ["/v1/topics/t/messages", "/producer/produce"])
async def test_too_many_bodies_that_do_not_end(node: Node, path: str) -> None:
    """The memory for bodies that have begun is limited for the whole node; small ones are let be."""
    node.broker.pressure.budget = 6 << 20
    small, first, second = [await node.connect() for _ in range(3)]
    head = f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n"
    small.writer.write((head % 2).encode() + b"{")
    first.writer.write((head % (8 << 20)).encode() + b"x" * (2 << 20))
    await until(lambda: node.broker.pressure.held >= 2 << 20)
    second.writer.write((head % (8 << 20)).encode() + b"x" * (2 << 20))
    answer = await first.answer()
    assert answer.status == 503
    assert answer.json["message"] == TOO_SLOW
    small.writer.write(b"}")
    assert (await small.answer()).status == 400
    for peer in (small, first, second):
        peer.close()
    await until(lambda: node.broker.pressure.held == 0)


async def test_a_stream_without_events_says_that_it_is_there(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comment every now and then keeps proxies from closing it."""
    monkeypatch.setattr(events, "ALIVE_SECONDS", 0.01)
    await node.post("/v1/topics/t/subscriptions", {"name": "sue"})
    peer = await node.connect()
    await peer.send("GET", "/v1/topics/t/subscriptions/sue/events")
    await peer.head()
    async with asyncio.timeout(60):
        while b"still here" not in await peer.reader.readline():
            pass
    peer.close()


async def test_surrogates_in_a_path(node: Node) -> None:
    """What is no text is refused with an answer that is."""
    answer = await node.get("/v1/topics/%ED%A0%80")
    assert (answer.status, answer.json["error"]) == (400, "invalid")


async def test_a_port_in_use(broker: Broker) -> None:
    """It is an error of the operating system, for the command line to explain."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            await HttpDoor(broker).open("127.0.0.1", taken.getsockname()[1])


async def test_keep_alive_and_pipelining(node: Node) -> None:
    """Requests that come together on one connection are answered one after the other."""
    peer = await node.connect()
    for _ in range(3):
        await peer.send("GET", "/livez")
    assert [(await peer.answer()).content for _ in range(3)] == [b"ok\n"] * 3
    await peer.send("GET", "/livez", headers={"Connection": "close"})
    assert (await peer.answer()).content == b"ok\n"
    assert await peer.reader.read() == b""
    peer.close()


async def test_an_idle_connection_ends(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a request for some seconds is closed, one whose request is open is not."""
    monkeypatch.setattr(http, "KEEP_ALIVE_SECONDS", 0.0)
    idle, busy = await node.connect(), await node.connect()
    await node.post("/v1/topics", {"name": "A"})
    await busy.send("GET", "/v1/topics/A/partitions/1/messages?wait=60")
    await idle.send("GET", "/livez")
    assert (await idle.answer()).content == b"ok\n"
    async with asyncio.timeout(60):
        assert await idle.reader.read() == b""
    await node.post("/v1/topics/A/messages", {"body": "x"})
    assert (await busy.answer()).json["messages"][0]["body"] == "x"
    for peer in (idle, busy):
        peer.close()


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
@pytest.mark.parametrize("beginning", [b"GET /", b"GET / HTTP/1.1\r\nx: ", b"GET / HTTP/1.1\r\nx"])
async def test_a_head_that_is_too_large(node: Node, beginning: bytes, end: bytes) -> None:
    """It is refused, whole or without an end: nobody waits for that, and it is not collected in memory."""
    peer = await node.connect()
    peer.writer.write(beginning.ljust(MAX_HEAD + 30, b"x") + end)
    async with asyncio.timeout(60):
        said = await peer.reader.read()
    head, _, content = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 ")
    assert b"content-type: application/json\r\n" in head
    assert "at most 65536 bytes" in json.loads(content)["message"]
    peer.close()


async def test_another_protocol_is_offered(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """Clients that would rather speak HTTP/2 say so with every request; they get their answers in HTTP/1.1,
    and the log does not fill with it."""
    peer = await node.connect()
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMA"}
    for name in ("A", "B"):
        await peer.send("POST", "/topics", {"name": name}, offer)
        assert (await peer.answer()).status == 200
    assert (await node.get("/topics")).json["topics"] == ["A", "B"]
    assert not caplog.records
    peer.close()


async def test_only_the_head(node: Node) -> None:
    """HEAD is answered like GET where that changes nothing, without the body."""
    peer = await node.connect()
    for path in ("/docs", "/metrics", "/v1/openapi.json", "/livez", "/readyz"):
        await peer.send("HEAD", path)
        status, headers = await peer.head()
        assert (status, int(headers["content-length"]) > 0) == (200, True)
    peer.close()
    answer = await node.get("/")
    assert (answer.status, answer.headers["location"]) == (307, "/docs")
