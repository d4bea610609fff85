"""The balancer's connections: clients that send ahead, read slowly or leave, answers that come in parts."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from cluster.balanced import World, balanced
from cluster.scripted_manager import HANG, answer
from nuncius.broker.limits import Limits
from nuncius.cluster.balancer.client import MAX_HEADERS
from nuncius.cluster.balancer.managers import Manager
from nuncius.cluster.reverse_proxy import upstream as balancer_upstream
from nuncius.cluster.reverse_proxy.upstream import State, Upstream
from racing import until


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with balanced() as made:
        yield made


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


async def test_far_ahead(world: World) -> None:
    """However many requests a client sends ahead, each is answered."""
    world.writer.script = lambda _: HANG
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    ahead = 5000
    writer.write(
        b"POST /topics HTTP/1.1\r\ncontent-length: 0\r\n\r\n" + b"GET /livez HTTP/1.1\r\n\r\n" * ahead
    )
    await until(lambda: world.writer.requests)
    for each in world.writer.writers:
        each.write(answer(b"at last"))
    async with asyncio.timeout(60):
        await reader.readuntil(b"at last")
        for _ in range(ahead):
            assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200 OK")
    writer.close()


async def test_nonsense_behind_a_request(world: World) -> None:
    """It is not told, for that would be taken for the answer; the connection ends."""
    world.writer.script = lambda _: HANG
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"POST /topics HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
    await until(lambda: world.writer.requests)
    writer.write(b"nonsense\r\n\r\n")
    assert await asyncio.wait_for(reader.read(), 10) == b""
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
    ("request_bytes", "status", "expected"),
    [
        (b"nonsense\r\n\r\n", 400, b"this is not HTTP"),
        (b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", 400, b"connect a WebSocket"),
        (b"GET / HTTP/1.1\r\nx: " + b"x" * 70_000 + b"\r\n\r\n", 431, b"at most 65536 bytes"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 431, b"at most 65536 bytes"),
    ],
)
async def test_what_makes_no_sense(world: World, request_bytes: bytes, status: int, expected: bytes) -> None:
    """Nonsense gets an error in the form of all others, and the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(request_bytes)
    said = await reader.read()
    assert said.startswith(b"HTTP/1.1 %d " % status)
    assert expected in said
    writer.close()


async def test_a_client_that_leaves(world: World) -> None:
    """Its request is not waited for any longer, and nothing of it stays behind."""
    world.writer.script = lambda _: HANG
    _, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"POST /topics HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
    await until(lambda: world.writer.requests)
    writer.close()
    await asyncio.wait_for(world.writer.lost.wait(), 10)
    await until(lambda: not world.balancer.clients)
    assert not world.balancer.asked


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


class Slow:
    """A client that has had enough with the end of its answer."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.done = asyncio.Event()

    def answer_begins(self, status: int) -> bool:
        return status == 200

    def answer_part(self, data: bytes) -> None:
        assert data
        self._upstream.pause()

    def answer_ends(self, closes: bool) -> None:
        assert not closes
        self.done.set()

    def answer_refused(self, status: int, content: bytes) -> None:
        raise AssertionError(status, content)

    def answer_fails(self, reason: str, begun: bool) -> None:
        raise AssertionError(reason, begun)


class Failing(Slow):
    """A client that hears that its request has failed."""

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(upstream)
        self.reasons: list[tuple[str, bool]] = []

    def answer_fails(self, reason: str, begun: bool) -> None:
        self.reasons.append((reason, begun))


async def test_a_slow_client_and_the_next(world: World) -> None:
    """A connection on which reading had paused when the answer ended is good for the next request."""
    manager = Manager("127.0.0.1", world.writer.port)
    upstream = await manager.connect()
    for _ in range(2):
        client = Slow(upstream)
        upstream.ask(b"GET / HTTP/1.1\r\n\r\n", client, is_head=False, deadline=0)
        await asyncio.wait_for(client.done.wait(), 10)
        assert manager.take_idle(world.balancer.now()) is upstream
    upstream.close()


async def test_a_connection_that_ends_before_the_request(world: World) -> None:
    """A request on a connection that its manager has just closed fails at once."""
    manager = Manager("127.0.0.1", world.writer.port)
    upstream = await manager.connect()
    await world.writer.close()
    await until(lambda: upstream.state is State.CLOSED)
    client = Failing(upstream)
    upstream.ask(b"GET / HTTP/1.1\r\n\r\n", client, is_head=False, deadline=0)
    assert client.reasons == [("closed the connection", False)]


async def test_idle_connections_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection to a manager that nobody uses is closed before the manager closes it under a request."""
    await world.get()
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


async def test_a_client_that_stops(world: World) -> None:
    """A client that sends nothing, or does not go on with its request, is told so and disconnected."""
    world.balancer.limits = Limits(greeting_seconds=0.0, progress_seconds=0.0)
    for beginning in (b"", b"GET /livez HTTP/1.1\r\n", b"GET /livez HTTP/1.1\r\n\r\nGET /size"):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(beginning)
        async with asyncio.timeout(60):
            said = await reader.read()
        assert b"HTTP/1.1 408 Request Timeout\r\n" in said
        writer.close()


async def test_requests_count_until_they_are_answered(world: World) -> None:
    """The memory of an incomplete request and of one without an answer counts in the balancer's budget; while
    that is full, nothing is read."""
    pressure = world.balancer.pressure
    world.writer.script = lambda _: HANG
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"POST /topics HTTP/1.1\r\ncontent-length: 1000\r\n\r\n" + b"x" * 999)
    await until(lambda: pressure.held >= 999)
    pressure.budget = 1000
    writer.write(b"x")
    await until(lambda: world.writer.requests)
    assert pressure.held == 0
    assert pressure.level > 1000
    writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
    for each in world.writer.writers:
        each.write(answer(b"at last"))
    assert (await reader.readuntil(b"at last")).startswith(b"HTTP/1.1 200 X")
    assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200 OK")
    assert pressure.level == 0
    writer.close()
