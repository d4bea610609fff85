"""Managers that take requests and say nothing, and do not even say that they are alive."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from cluster.balanced import World, balanced, member
from cluster.http_caller import Caller
from cluster.scripted_manager import HANG, Script, answer
from nuncius.cluster.balancer import balancer
from nuncius.cluster.balancer import silence as balancer_silence
from nuncius.cluster.balancer.managers import READS, WRITES
from racing import until

PRODUCE, CONSUME, SIZE = "POST /producer/produce", "GET /consumer/consume", "GET /size"
Answer = tuple[int, bytes]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Two of the managers write, and two read."""
    async with balanced() as made:
        made.balancer.learn(
            [
                member("writer", made.writer.port),
                member("writer", made.first.port),
                member("reader", made.first.port),
                member("reader", made.second.port),
            ]
        )
        yield made


class Asking:
    """Requests, each over a connection of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.tasks: list[asyncio.Task[Answer]] = []

    def begin(self, line: str, headers: str = "", times: int = 1) -> None:
        loop = asyncio.get_running_loop()
        self.tasks += [loop.create_task(self._ask(line, headers)) for _ in range(times)]

    async def one(self, line: str) -> Answer:
        async with asyncio.timeout(10):
            return await self._ask(line, "")

    async def all(self) -> list[Answer]:
        async with asyncio.timeout(10):
            return await asyncio.gather(*self.tasks)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _ask(self, line: str, headers: str) -> Answer:
        caller = Caller(self._port)
        try:
            return await caller.raw(f"{line} HTTP/1.1\r\nhost: x\r\n{headers}\r\n".encode())
        finally:
            await caller.close()


@pytest.fixture
async def asking(world: World) -> AsyncIterator[Asking]:
    made = Asking(world.port)
    yield made
    await made.close()


def alive_but(busy: Script) -> Script:
    """A manager that says that it is alive, whatever becomes of other requests."""
    return lambda request: answer(b"ok\n") if request.startswith(b"GET /livez ") else busy(request)


def count(requests: list[bytes], line: str) -> int:
    return sum(request.startswith(line.encode()) for request in requests)


def silent(world: World, kind: str) -> list[int]:
    return [each.port for each in world.balancer.managers[kind].silent]


def test_within_a_second() -> None:
    """A silent manager is known within a second."""
    known = balancer_silence.WORDLESS_SECONDS + balancer.SWEEP_SECONDS + balancer_silence.ALIVE_SECONDS
    assert known < 1


async def test_a_silent_writer(world: World, asking: Asking) -> None:
    """New requests go to the other writer, although the silent one keeps its connections; it is asked again
    when it says that it is alive."""
    world.writer.script = lambda _: HANG
    asking.begin(PRODUCE, times=4)
    await until(lambda: silent(world, WRITES) == [world.writer.port])
    hung = count(world.writer.requests, PRODUCE)
    for _ in range(10):
        assert await asking.one(PRODUCE) == (200, b"first")
    assert count(world.writer.requests, PRODUCE) == hung > 0
    world.writer.script = alive_but(lambda _: answer(b"writer"))
    await until(lambda: not silent(world, WRITES))
    assert {(await asking.one(PRODUCE))[1] for _ in range(4)} == {b"writer", b"first"}


async def test_what_can_be_repeated(world: World, asking: Asking) -> None:
    """What can be repeated is repeated at another manager long before the silent one is given up."""
    world.first.script = lambda _: HANG
    asking.begin(SIZE, times=4)
    assert await asking.all() == [(200, b"second")] * 4
    asking.begin(PRODUCE, "Idempotency-Key: 7\r\n", times=4)
    assert (await asking.all())[4:] == [(200, b"writer")] * 4


async def test_what_cannot_be_repeated(world: World, asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be repeated is not: its client is told that the outcome is unknown, and may go on."""
    monkeypatch.setattr(balancer_silence, "GIVE_UP_SECONDS", 0.5)
    world.writer.script = lambda _: HANG
    asking.begin(PRODUCE, times=4)
    told = [body for status, body in await asking.all() if status == 400]
    assert told
    assert all(b"does not answer; it may or may not have done what was asked" in body for body in told)
    assert len(told) == count(world.writer.requests, PRODUCE)
    assert count(world.first.requests, PRODUCE) == 4 - len(told)


async def test_one_that_is_busy(world: World, asking: Asking) -> None:
    """A manager that takes its time for an answer, and says that it is alive, is waited for and asked on."""
    world.first.script = alive_but(lambda _: HANG)
    asking.begin(SIZE, times=2)
    await until(lambda: count(world.first.requests, "GET /livez "))
    await until(lambda: not world.balancer.silence.watched)
    asking.begin(SIZE, times=2)
    await until(lambda: count(world.first.requests, SIZE) == 2)
    assert silent(world, READS) == []
    for writer in world.first.writers:
        writer.write(answer(b"late"))
    assert sorted(body for _, body in await asking.all()) == [b"late", b"late", b"second", b"second"]


async def test_all_are_silent(world: World, asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no other manager is left, a silent one is asked all the same, and waited for: it may be back."""
    monkeypatch.setattr(balancer_silence, "GIVE_UP_SECONDS", 0.0)
    world.first.script = lambda _: HANG
    asking.begin(CONSUME, times=2)
    await until(lambda: silent(world, READS) == [world.first.port])
    await world.second.close()
    asking.begin(f"{CONSUME}?last")
    await until(lambda: count(world.first.requests, f"{CONSUME}?last"))
    assert not asking.tasks[-1].done()


async def test_one_that_has_ended(world: World, asking: Asking) -> None:
    """A silent manager that is not in the cluster any more is not watched when nothing waits for it."""
    world.writer.script = lambda _: HANG
    asking.begin(PRODUCE, "Idempotency-Key: 7\r\n", times=4)
    await asking.all()
    assert world.balancer.silence.watched
    world.balancer.learn([member("writer", world.first.port)])
    await until(lambda: not world.balancer.silence.watched)
