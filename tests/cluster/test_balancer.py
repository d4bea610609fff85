"""The balancer: who is asked, what happens when one does not answer, and that every request is answered."""

import asyncio
import datetime
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cluster.http_caller import Caller
from cluster.scripted_manager import HANG, ScriptedManager, answer, managers
from nuncius.cluster import balancer as module
from nuncius.cluster import balancer_managers, balancer_upstream
from nuncius.cluster.balancer import Balancer
from nuncius.cluster.balancer_client import MAX_HEADERS
from nuncius.cluster.balancer_managers import READS, WRITES, kind_of
from nuncius.cluster.members import Member
from racing import until

NOW = datetime.datetime.now(datetime.UTC)


def member(role: str, port: int, *, alive: bool = True) -> Member:
    return Member(port, "127.0.0.1", port, 1, (role,), None, 1, False, NOW, NOW, alive, 0)


class World:
    """A balancer in front of a write manager and two read managers."""

    def __init__(self, balancer: Balancer, port: int, made: list[ScriptedManager]) -> None:
        self.balancer = balancer
        self.port = port
        self.writer, self.first, self.second = made
        self.caller = Caller(port)

    async def get(self, path: str = "/size", **options: Any) -> tuple[int, bytes]:
        return await self.ask("GET", path, **options)

    async def ask(self, method: str, path: str, body: bytes = b"", headers: str = "") -> tuple[int, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {len(body)}\r\n\r\n"
        return await self.caller.raw(head.encode() + body)

    async def failure(self, method: str = "GET", path: str = "/size", **options: Any) -> str:
        status, body = await self.ask(method, path, **options)
        fields = json.loads(body)
        assert (status, fields["status"]) == (400, "failure")
        return str(fields["message"])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with managers("writer", "first", "second") as made:
        balancer = Balancer()
        port = await balancer.open("127.0.0.1", 0)
        roles = ("writer", "reader", "reader")
        balancer.learn([member(role, each.port) for role, each in zip(roles, made, strict=True)])
        world = World(balancer, port, made)
        yield world
        await world.caller.close()
        await balancer.close()


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", "/topics", WRITES),
        ("GET", "/topics", WRITES),
        ("POST", "/producer/produce", WRITES),
        ("POST", "/broker", WRITES),
        ("DELETE", "/broker/remove", WRITES),
        ("POST", "/partition", WRITES),
        ("POST", "/consumer/register", READS),
        ("GET", "/consumer/consume", READS),
        ("GET", "/size", READS),
        ("POST", "/v1/topics/news/messages", WRITES),
        ("GET", "/v1/topics", READS),
        ("POST", "/v1/topics/news/subscriptions/a/confirm", READS),
        ("GET", "/docs", READS),
    ],
)
def test_who_is_asked(method: str, path: str, kind: str) -> None:
    """Writes go to the write manager, reads to the read managers, as the report has it."""
    assert kind_of(method.encode(), path.encode()) == kind


async def test_in_turn(world: World) -> None:
    """Reads go to the read managers one after the other, writes all to the write manager; requests arrive
    whole, on connections that are kept."""
    assert {(await world.get())[1] for _ in range(2)} == {b"first", b"second"}
    for _ in range(4):
        await world.get("/size?topic=A", headers="X-Other: 1\r\nConnection: keep-alive\r\n")
    assert await world.ask("POST", "/producer/produce", b'{"a": 1}') == (200, b"writer")
    assert len(world.first.requests) == len(world.second.requests) == 3
    assert world.first.connections == world.second.connections == 1
    assert b"GET /size?topic=A HTTP/1.1\r\nhost: x\r\nX-Other: 1\r\n\r\n" in world.first.requests
    assert world.writer.requests[0].endswith(b'content-length: 8\r\n\r\n{"a": 1}')


async def test_left_out(world: World) -> None:
    """A manager that does not answer is left out, and asked again when it is back."""
    await world.first.close()
    assert {(await world.get())[1] for _ in range(6)} == {b"second"}
    await world.first.open()

    async def is_back() -> bool:
        return (await world.get())[1] == b"first"

    await until(is_back)


async def test_nobody_answers(world: World) -> None:
    """When nobody is left, the error says who failed, and the connection lives on."""
    for each in (world.writer, world.first, world.second):
        await each.close()
    assert await world.failure("POST", "/topics") == (
        f"Write Manager Failed: 127.0.0.1:{world.writer.port} does not answer"
    )
    assert (await world.failure()).startswith("Read Manager Failed: 127.0.0.1:")
    world.balancer.learn([member("writer", world.writer.port, alive=False)])
    assert await world.failure("POST", "/topics") == "Write Manager Failed: there is none"
    assert await world.get("/livez") == (200, b"ok\n")


async def test_lost_on_the_way(world: World) -> None:
    """A manager that hangs up may have done what was asked: a read, or what has a key, is asked of the next
    one, the rest is told."""
    world.first.script = lambda _: None
    for _ in range(4):
        assert await world.get() == (200, b"second")
    consume = "/consumer/consume"
    answers = [await world.get(consume, headers="Idempotency-Key: 7\r\n") for _ in range(4)]
    assert set(answers) == {(200, b"second")}

    async def told() -> bool:
        status, body = await world.get(consume)
        return status == 400 and b"closed the connection; it may or may not have done" in body

    await until(told)


async def test_a_manager_that_fails(world: World) -> None:
    """A manager's own failure is told in its name and with its address; what it says of a request is passed
    on as it is; /v1 has its own way of telling."""
    world.writer.script = lambda _: answer(b'{"status":"failure","message":"no broker answers"}', 503)
    assert await world.failure("POST", "/topics") == (
        f"Write Manager Failed: 127.0.0.1:{world.writer.port}: no broker answers"
    )
    world.writer.script = lambda _: answer(b"oops", 500)
    assert (await world.failure("POST", "/topics")).endswith("answered with status 500")
    assert await world.ask("POST", "/v1/topics", b"{}") == (500, b"oops")
    world.writer.script = lambda _: answer(b'{"status":"failure","message":"Topic already exists"}', 400)
    assert await world.failure("POST", "/topics") == "Topic already exists"
    world.writer.script = lambda _: b"hello\r\n\r\n"
    assert "sent something that is not HTTP" in await world.failure("POST", "/topics")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/topics", b'{"topic_name": "A"}'),
        ("POST", "/producer/produce", b'{"message": "x", "topic_name" : "A"}'),
        ("GET", "/consumer/consume?consumer_id=1&topic_name=A", b""),
        ("POST", "/broker", b'{"port": 1000}'),
        ("DELETE", "/broker/remove", b'{"broker_id": 1}'),
    ],
)
async def test_the_authors_balancer(world: World, method: str, path: str, body: bytes) -> None:
    """In the authors' spelling what a manager refuses is told in its name, too, as their balancer does."""
    for each in (world.writer, world.first, world.second):
        each.script = lambda _: answer(b'{"status":"failure","message":"No"}', 400)
    kind = "Read" if path.startswith("/consumer") else "Write"
    assert await world.failure(method, path, body=body) == f"{kind} Manager Failed: No"
    assert await world.failure(method, path, body=body) == f"{kind} Manager Failed: No"  # that it is kept
    course = b'{"topic": "A", "message": "not \\"topic_name\\": "}'
    assert await world.failure("POST", "/producer/produce", body=course) == "No"


async def test_no_request_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manager that takes a request and says nothing is given up."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(balancer_managers, "REST_SECONDS", 60.0)
    world.writer.script = lambda _: HANG
    async with asyncio.timeout(60):
        assert "has not answered in time" in await world.failure("POST", "/topics")
        world.first.script = lambda _: HANG
        assert [await world.get() for _ in range(4)] == [(200, b"second")] * 4


async def test_a_host_that_is_not_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is not made in time is a manager that does not answer."""
    monkeypatch.setattr(balancer_upstream, "CONNECT_SECONDS", 0.0)
    assert (await world.failure()).endswith("does not answer")


async def test_answers_in_parts(world: World) -> None:
    """Chunks pass as they come, a HEAD has no body, an answer may end with its connection, and one that
    breaks off breaks off."""
    chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"
    world.writer.script = lambda _: chunks
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"POST /topics HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
    assert (await reader.readuntil(b"hello\r\n")).endswith(b"5\r\nhello\r\n")
    await world.writer.close()
    assert await reader.read() == b""
    writer.close()
    await world.writer.open()
    world.writer.script = lambda _: b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi"
    assert await world.ask("POST", "/topics") == (200, b"hi")
    with pytest.raises(ConnectionError):
        await world.ask("POST", "/topics")  # that connection has ended, too
    world.first.script = world.second.script = lambda _: b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    for _ in range(2):
        writer.write(b"HEAD /size HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
    for each in (world.first, world.second):
        await each.close()
    for path, status in ((b"/livez", b"200 OK"), (b"/size", b"400 Bad Request"), (b"/livez", b"200 OK")):
        writer.write(b"HEAD %b HTTP/1.1\r\n\r\n" % path)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 " + status)
    writer.close()


async def test_one_after_the_other(world: World) -> None:
    """A client may send many requests ahead; they are answered in order. The last may end the connection."""
    world.writer.script = lambda request: answer(request.split()[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    for n in range(100):
        writer.write(b"POST /topics%d HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n" % n)
    for n in range(100):
        said = await reader.readuntil(b"/topics%d" % n)
        assert said.count(b"HTTP/1.1 200 X") == 1
    last = b"POST /topics HTTP/1.1\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-length: 1\r\n\r\ny"
    writer.write(last)
    said = await reader.read()
    assert said.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 X")
    assert world.writer.requests[0].endswith(b"content-length: 1\r\n\r\nx")
    writer.close()


async def test_another_protocol_is_offered(world: World) -> None:
    """Clients that would rather speak HTTP/2 say so with every request, and are answered in HTTP/1.1."""
    world.writer.script = lambda request: answer(request.split()[1])
    offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    for n in range(3):
        writer.write(b"POST /topics%d HTTP/1.1\r\n%bcontent-length: 1\r\n\r\nx" % (n, offer))
        said = await reader.readuntil(b"/topics%d" % n)
        assert said.count(b"HTTP/1.1 200 X") == 1
    assert world.writer.requests[0].endswith(b"content-length: 1\r\n\r\nx")
    assert b"h2c" not in world.writer.requests[0]
    writer.close()


@pytest.mark.parametrize("endless", [b"GET /", b"GET / HTTP/1.1\r\nx: ", b"GET / HTTP/1.1\r\nx"])
async def test_a_head_without_an_end(world: World, endless: bytes) -> None:
    """Nobody waits for it for ever, and it is not collected in memory."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(endless.ljust(MAX_HEADERS + 1, b"x"))
    async with asyncio.timeout(60):
        assert b"at most 65536 bytes" in await reader.read()
    writer.close()


async def test_too_many_clients(world: World) -> None:
    """One more than may be connected is told so."""
    assert (await world.get())[0] == 200
    world.balancer.max_connections = 1
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
    writer.close()
    assert (await world.get())[0] == 200


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"nonsense\r\n\r\n", b"this is not HTTP"),
        (b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", b"connect a WebSocket"),
        (b"GET / HTTP/1.1\r\nx: " + b"x" * 70_000 + b"\r\n\r\n", b"at most 65536 bytes"),
    ],
)
async def test_what_makes_no_sense(world: World, request_bytes: bytes, expected: bytes) -> None:
    """Nonsense gets an error in the form of all others, and the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(request_bytes)
    said = await reader.read()
    assert said.startswith(b"HTTP/1.1 400 ")
    assert expected in said
    writer.close()


async def test_a_client_that_leaves(world: World) -> None:
    """Its request is not waited for any longer."""
    world.writer.script = lambda _: HANG
    _, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"POST /topics HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
    await until(lambda: world.writer.requests)
    writer.close()
    await asyncio.wait_for(world.writer.lost.wait(), 10)
    await until(lambda: not world.balancer.asked or all(not c.idle.is_set() for c in world.balancer.clients))


async def test_a_client_that_reads_slowly(world: World) -> None:
    """Large answers come whole, however slowly they are read, and do not pile up in the balancer."""
    large = b"x" * (32 << 20)
    world.writer.script = lambda _: answer(large)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1 << 16)
    writer.write(b"POST /topics HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
    await until(lambda: any(upstream.is_paused for upstream in world.balancer.asked))
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"content-length: %d" % len(large) in head
    assert await reader.readexactly(len(large)) == large
    writer.close()


async def test_idle_connections_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to a manager that nobody uses is closed before the manager closes it under a request."""
    await world.get()
    monkeypatch.setattr(balancer_managers, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(balancer_upstream, "IDLE_SECONDS", 0.0)
    assert (await world.get())[0] == 200
    await until(lambda: world.first.lost.is_set() or world.second.lost.is_set())


async def test_unasked_words(world: World) -> None:
    """A manager that speaks unasked is not listened to; the next request gets another connection."""
    await world.ask("POST", "/topics")
    for writer in world.writer.writers:
        writer.write(answer(b"psst"))
    await asyncio.wait_for(world.writer.lost.wait(), 10)
    assert await world.ask("POST", "/topics") == (200, b"writer")


async def test_an_answer_without_an_end(world: World) -> None:
    """An answer whose length is not told ends with its connection; interim answers are passed on."""
    world.writer.script = lambda _: b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\n\r\nto the end"
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"POST /topics HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
    await reader.readuntil(b"to the end")
    await world.writer.close()
    assert await reader.read() == b""
    writer.close()


async def test_somebody_has_just_started(world: World) -> None:
    """When nobody is known, the balancer looks again before it says so."""
    world.balancer.learn([])

    async def look() -> None:
        world.balancer.learn([member("writer", world.writer.port)])

    world.balancer.look = look
    assert await world.ask("POST", "/topics") == (200, b"writer")
    assert await world.failure() == "Read Manager Failed: there is none"


async def test_closing(world: World) -> None:
    """What was asked is answered, then connections end."""
    world.writer.script = lambda _: HANG
    asked = asyncio.ensure_future(world.ask("POST", "/topics"))
    await until(lambda: world.writer.requests)
    closing = asyncio.ensure_future(world.balancer.close())
    await asyncio.sleep(0)
    assert not closing.done()
    for writer in world.writer.writers:
        writer.write(answer(b"late"))
    assert await asked == (200, b"late")
    await asyncio.wait_for(closing, 10)
