"""Reads of a connection take turns, by the size of their answers."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from nuncius.doors.tribbler.turns import FIRST, PORTION, Turns
from nuncius.doors.wire import Wire


class Readers:
    """Reads that begin when it is their turn; their client reads unless the test says otherwise."""

    def __init__(self) -> None:
        self.client_reads = asyncio.Event()
        self.client_reads.set()
        self.turns = Turns(cast("Wire", self))
        self._tasks: list[asyncio.Task[None]] = []

    async def writable(self) -> None:
        await self.client_reads.wait()

    def ask(self, count: int) -> None:
        self._tasks += [asyncio.ensure_future(self.turns.begin()) for _ in range(count)]

    def answer(self, count: int, size: int) -> None:
        for _ in range(count):
            self.turns.end(size)

    async def begun(self) -> int:
        """How many have had their turn, when nothing moves any more."""
        for _ in range(4 * len(self._tasks)):
            await asyncio.sleep(0)
        return sum(task.done() for task in self._tasks)

    def give_up(self) -> None:
        for task in self._tasks:
            task.cancel()


@pytest.fixture
async def readers() -> AsyncIterator[Readers]:
    made = Readers()
    yield made
    made.give_up()


async def test_large_answers(readers: Readers) -> None:
    """A few begin, and when their answers are large it stays at what fits; a larger one goes alone."""
    readers.ask(200)
    first = PORTION // FIRST
    assert await readers.begun() == first
    readers.answer(first, PORTION // 4)
    assert await readers.begun() == first + 4
    readers.answer(4, 2 * PORTION)
    assert await readers.begun() == first + 5


async def test_small_answers(readers: Readers) -> None:
    """A client with small answers has a thousand reads under way before long."""
    readers.ask(1000)
    while (begun := await readers.begun()) < 1000:
        readers.answer(1, 100)
    assert begun == 1000
    readers.ask(900)
    readers.answer(950, 100)
    assert await readers.begun() == 1900


async def test_a_client_that_does_not_read(readers: Readers) -> None:
    """Nothing more is worked on for it until it does."""
    readers.client_reads.clear()
    readers.ask(5)
    assert await readers.begun() == 0
    readers.client_reads.set()
    assert await readers.begun() == 5
