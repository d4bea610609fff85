"""Answers of a connection that may be large are looked up in turn, by the size of those before."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from nuncius.broker.model import Pressure
from nuncius.doors.replies import COPIES, PORTION, Replies

FIRST = PORTION // 2


class Readers:
    """Look-ups that begin when it is their turn; their client reads unless the test says otherwise."""

    def __init__(self) -> None:
        self.client_reads = asyncio.Event()
        self.client_reads.set()
        self.pressure = Pressure()
        self.replies = Replies(self.pressure, self.is_stalled, self.writable, FIRST)
        self.begun = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._answers: asyncio.Queue[int] = asyncio.Queue()

    def is_stalled(self) -> bool:
        return not self.client_reads.is_set()

    async def writable(self) -> None:
        await self.client_reads.wait()

    async def _look_up(self) -> None:
        async with self.replies:
            self.begun += 1
            size = await self._answers.get()
        self.replies.sent(size)

    def ask(self, count: int) -> None:
        self._tasks += [asyncio.ensure_future(self._look_up()) for _ in range(count)]

    def answer(self, count: int, size: int) -> None:
        for _ in range(count):
            self._answers.put_nowait(size)

    async def at_rest(self) -> int:
        """How many have begun, when nothing moves any more."""
        for _ in range(8 * len(self._tasks)):
            await asyncio.sleep(0)
        return self.begun

    def give_up(self) -> None:
        for task in self._tasks:
            task.cancel()


@pytest.fixture
async def readers() -> AsyncIterator[Readers]:
    made = Readers()
    yield made
    made.give_up()


async def test_large_answers(readers: Readers) -> None:
    """As many begin as fit, judging by those before; a larger one goes alone."""
    readers.ask(20)
    assert await readers.at_rest() == 2
    readers.answer(2, 2 * PORTION)
    assert await readers.at_rest() == 3
    readers.answer(1, 2 * PORTION)
    assert await readers.at_rest() == 4


async def test_small_answers(readers: Readers) -> None:
    """A client with small answers has many look-ups under way before long."""
    readers.ask(1000)
    answered = 0
    while await readers.at_rest() < 1000:
        readers.answer(1, 100)
        answered += 1
    assert answered < 20


async def test_a_client_that_does_not_read(readers: Readers) -> None:
    """Nothing is looked up for it until it does."""
    readers.client_reads.clear()
    readers.ask(2)
    assert await readers.at_rest() == 0
    readers.client_reads.set()
    assert await readers.at_rest() == 2


async def test_room_of_the_node(readers: Readers) -> None:
    """When the node has no room, one is looked up at a time; what is given up gives its room back."""
    readers.pressure.budget = 4 * COPIES * FIRST
    readers.ask(2)
    assert await readers.at_rest() == 1
    readers.answer(1, 100)
    assert await readers.at_rest() == 2
    readers.give_up()
    await readers.at_rest()
    assert readers.pressure.level == 0
