"""Answers leave in the order of their requests, within bounds, over a real connection."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from nuncius.broker import Broker
from nuncius.doors import wire as wires
from nuncius.doors.replies import Reply, RequestLine, UnreadAnswers
from nuncius.doors.tcp import TcpDoor
from nuncius.doors.wire import Session, Wire
from racing import until

COST = 100
MUCH = 1 << 16


class TextSession:
    """A protocol of one request a line. Its first letter is the kind, `-` for a request that runs alone. The
    test says when a request is done."""

    speaks = "text"

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.open: dict[str, Reply] = {}
        self.begun: list[str] = []
        self.unread = UnreadAnswers(wire, MUCH, self.go_on)
        self.line: RequestLine[Reply] = RequestLine(wire, self.begin, self.unread)
        self.is_held = False
        wire.is_greeted = True
        wire.on_end = self.line.end_with_the_newest

    def received(self, data: bytes) -> None:
        requests = data.decode().split()
        cost = self.wire.accept(data, len(requests), COST, 0)
        for request in requests:
            kind = {"a": "a", "b": "b"}.get(request[0])
            self.line.enter(Reply(request, cost, kind))
            cost = COST

    def begin(self, reply: Reply) -> bool:
        if self.is_held or self.unread.is_much:
            return False
        self.begun.append(reply.request)
        self.open[reply.request] = reply
        return True

    def go_on(self) -> None:
        self.line.advance()

    def done(self, *requests: str, size: int = 0) -> None:
        for request in requests:
            self.line.answer(self.open.pop(request), f"{request}{'.' * size}\n".encode())

    def lost(self) -> None:
        self.line.drop()
        for reply in self.open.values():
            self.line.answer(reply, b"")

    async def finish(self) -> None:
        self.wire.close()

    def break_off(self, reason: str) -> None:
        self.wire.close()


class TextDoor(TcpDoor):
    name = "text"

    def greet(self, wire: Wire) -> Session:
        self.session = TextSession(wire)
        return self.session


@dataclass
class Talk:
    """A client of the door, and the session that serves it."""

    door: TextDoor
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    sent: list[str] = field(default_factory=list)

    @property
    def session(self) -> TextSession:
        return self.door.session

    @property
    def reading(self) -> bool:
        return self.session.wire._reading  # noqa: SLF001

    async def ask(self, *requests: str) -> None:
        """Send requests in one write, and wait until they have arrived."""
        self.writer.write(" ".join(requests).encode())
        before = self.session.wire.bytes_in
        await until(lambda: self.session.wire.bytes_in > before)

    async def answers(self, count: int) -> list[str]:
        async with asyncio.timeout(60):
            return [(await self.reader.readline()).decode().strip() for _ in range(count)]


@pytest.fixture
async def talk(broker: Broker) -> AsyncIterator[Talk]:
    door = TextDoor(broker)
    port = await door.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    await until(lambda: door.connections == 1)
    yield Talk(door, reader, writer)
    writer.close()
    await door.close()


async def test_order(talk: Talk) -> None:
    """Requests of one kind run together, and their answers leave in the order of the requests."""
    await talk.ask("a1", "a2", "a3")
    assert talk.session.begun == ["a1", "a2", "a3"]
    talk.session.done("a3", "a2", "a1")
    assert await talk.answers(3) == ["a1", "a2", "a3"]


async def test_kinds(talk: Talk) -> None:
    """A request of another kind, or without one, begins when those before it are answered."""
    await talk.ask("a1", "a2", "b3", "-4", "-5")
    assert talk.session.begun == ["a1", "a2"]
    talk.session.done("a2")
    assert talk.session.begun == ["a1", "a2"]
    talk.session.done("a1")
    assert talk.session.begun[2:] == ["b3"]
    talk.session.done("b3")
    assert talk.session.begun[3:] == ["-4"]
    talk.session.done("-4", "-5")
    assert await talk.answers(5) == ["a1", "a2", "b3", "-4", "-5"]
    assert talk.session.line.is_empty


async def test_held_up(talk: Talk) -> None:
    """A request that the session does not begin holds up those behind it until it is told to go on."""
    talk.session.is_held = True
    await talk.ask("a1", "a2")
    assert talk.session.begun == []
    talk.session.is_held = False
    talk.session.go_on()
    assert talk.session.begun == ["a1", "a2"]


async def test_last_answer(talk: Talk) -> None:
    """The connection is closed after the answer that is marked as the last; later answers are not sent."""
    await talk.ask("a1", "a2", "a3")
    talk.session.open["a2"].is_last = True
    talk.session.done("a3", "a2", "a1")
    assert await talk.answers(3) == ["a1", "a2", ""]


async def test_answers_without_bytes(talk: Talk) -> None:
    """A request that has no answer does not hold up the others."""
    await talk.ask("a1", "a2", "a3")
    talk.session.done("a3", "a2")
    talk.session.line.answer(talk.session.open.pop("a1"), b"")
    assert await talk.answers(2) == ["a2", "a3"]


async def test_owed_answer(talk: Talk) -> None:
    """An answer that nothing asked for leaves after those of the requests that have begun."""
    await talk.ask("a1", "b2")
    notice = talk.session.line.owe(Reply(None, 0))
    talk.session.line.answer(notice, b"notice\n")
    talk.session.done("a1")
    talk.session.done("b2")
    assert await talk.answers(3) == ["a1", "notice", "b2"]


async def test_half_closed(talk: Talk) -> None:
    """A client that closes its side gets the answers to all that it has asked, then the connection ends."""
    await talk.ask("a1", "b2")
    talk.writer.write_eof()
    await until(lambda: talk.session.line._behind[-1].is_last)  # noqa: SLF001
    talk.session.done("a1")
    talk.session.done("b2")
    assert await talk.answers(3) == ["a1", "b2", ""]


async def test_closing_in_the_middle(talk: Talk, broker: Broker) -> None:
    """When the connection is lost, nothing that waits begins, and no memory stays counted."""
    await talk.ask("a1", "b2", "b3")
    assert broker.pressure.level == 3 * COST + len("a1 b2 b3")
    talk.session.wire.abort()
    await until(lambda: talk.door.connections == 0)
    assert talk.session.begun == ["a1"]
    assert broker.pressure.level == 0


async def test_closed_line(talk: Talk, broker: Broker) -> None:
    """A closed line drops the requests that come, and finishes those that it has."""
    await talk.ask("a1")
    talk.session.line.is_closed = True
    await talk.ask("a2")
    talk.session.done("a1")
    assert talk.session.begun == ["a1"]
    assert broker.pressure.level == 0


async def test_backpressure(talk: Talk, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node reads no more from a client with many bytes unanswered, and goes on when half are answered."""
    monkeypatch.setattr(wires, "MAX_UNANSWERED", 5 * COST)
    await talk.ask(*[f"a{n}" for n in range(6)])
    read = [talk.reading]
    talk.session.done(*[f"a{n}" for n in range(5)])
    read.append(talk.reading)
    assert read == [False, True]
    talk.session.done("a5")
    assert broker.pressure.level == 0


async def test_a_client_that_does_not_read(talk: Talk) -> None:
    """After many bytes nothing more begins until the client has caught up."""
    piece = 4 * wires.WRITE_BUFFER
    await talk.ask("-1", "-2", "-3")
    talk.session.done("-1", size=piece)
    assert talk.session.begun == ["-1"]
    (first,) = await talk.answers(1)
    assert len(first) == piece + 2
    await until(lambda: talk.session.begun == ["-1", "-2"])


async def test_answers_that_wait_are_counted(talk: Talk) -> None:
    """The bytes of answers that wait for earlier ones are known, so that a session can stop in time."""
    await talk.ask("a1", "a2")
    talk.session.done("a2", size=97)
    assert talk.session.unread.kept == 100
    talk.session.done("a1")
    assert talk.session.unread.kept == 0
    assert len(await talk.answers(2)) == 2
