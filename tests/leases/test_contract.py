"""The contract of leases, through every surface: with two consumers, each at a node of its own."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import pytest

from broker.acknowledging import PATIENT, QUICK, gate_leases, node, until_held
from broker.inside import queue, start, until_nodes, until_waiting_for
from leases.surfaces import SURFACES, Consumer, Delivery, Native, Stomp, World
from nuncius.broker.limits import Limits
from nuncius.broker.model import Letter
from racing import until


@asynccontextmanager
async def open_world(dsn: str, limits: Limits) -> AsyncIterator[World]:
    async with AsyncExitStack() as closing:
        nodes = [await closing.enter_async_context(node(dsn, limits)) for _ in range(2)]
        await until_nodes(2, *nodes)
        connection = await asyncpg.connect(dsn)
        closing.push_async_callback(connection.close)
        yield World(dsn, (nodes[0], nodes[1]), await queue(nodes[0]), connection, closing)


@pytest.fixture
async def world(dsn: str, no_safety_net: None) -> AsyncIterator[World]:  # noqa: ARG001  (before it)
    async with open_world(dsn, QUICK) as opened:
        yield opened


every_surface = pytest.mark.parametrize("surface", SURFACES)
surfaces_that_wait = pytest.mark.parametrize("surface", [each for each in SURFACES if each.waits])
surfaces_that_notice = pytest.mark.parametrize("surface", [each for each in SURFACES if each.knows_leaving])


async def consumer(world: World, surface: type[Consumer], at: int = 0) -> Consumer:
    made = surface(world, at)
    await made.open()
    return made


@every_surface
async def test_one_consumer_has_it(world: World, surface: type[Consumer]) -> None:
    """A leased message is whole and out of its queue; settled, it is gone for good."""
    ann = await consumer(world, surface)
    await world.put(Letter(b"x", 7, headers='{"a": "b"}'))
    one = await ann.next()
    assert (one.body, one.priority, one.headers["a"], one.attempts) == (b"x", 7, "b", 0)
    assert (await world.ready(), await world.in_hand()) == ([], 1)
    assert await world.nodes[1].queues.take(world.queue_id) == []
    await ann.settle(one)
    assert (await world.ready(), await world.in_hand()) == ([], 0)


@every_surface
async def test_strict_order(world: World, surface: type[Consumer]) -> None:
    """A consumer gets messages by priority, the oldest of a priority first."""
    await world.put(*(Letter(b"%d" % n, 1 + (7 * n) % 10) for n in range(20)))
    ann = await consumer(world, surface)
    seen = []
    for _ in range(20):
        one = await ann.next()
        await ann.settle(one)
        seen.append((-one.priority, int(one.body)))
    assert seen == sorted(seen)
    assert len(set(seen)) == 20


@every_surface
async def test_competing_consumers(world: World, surface: type[Consumer]) -> None:
    """Consumers at two nodes who settle, fail and give back: each message is settled once, none is lost, and
    each one that failed comes again counted."""
    total = 30
    settled: list[int] = []
    failed: set[int] = set()
    given_back: set[int] = set()

    async def consume(at: int) -> None:
        own = await consumer(world, surface, at)
        while True:
            one = await own.next()
            number = int(one.body)
            assert one.attempts == (number in failed)
            if number % 3 == 0 and number not in failed:
                failed.add(number)
                await own.release(one, "no")
            elif number % 5 == 1 and number not in given_back:
                given_back.add(number)
                await own.release(one)
            else:
                settled.append(number)
                await own.settle(one)

    consumers = [start(consume(at)) for at in (0, 1)]
    await world.put(*(Letter(b"%d" % n, 1 + n % 10) for n in range(total)))
    await until(lambda: len(settled) >= total or any(each.done() for each in consumers))
    await until_held(world.connection, 0)
    for each in consumers:
        each.cancel()
    ended = await asyncio.gather(*consumers, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended
    assert sorted(settled) == list(range(total))


@every_surface
async def test_given_back(world: World, surface: type[Consumer]) -> None:
    """Released without a reason, a message is there at once for the consumer that waits at another node, is
    not counted, and keeps its first id."""
    ann, bob = await consumer(world, surface), await consumer(world, surface, 1)
    await world.put(b"x")
    one = await ann.next()
    waiting = start(bob.next())
    if bob.waits:
        await until_waiting_for(bob.node, world.queue_id)
    await ann.release(one)
    again = await waiting
    assert (again.body, again.attempts, again.origin) == (b"x", 0, one.origin)
    await bob.settle(again)
    assert await world.nodes[0].failures() == []


@every_surface
async def test_a_failed_attempt(world: World, surface: type[Consumer]) -> None:
    """Released with a reason, a message comes again by itself after the retry delay, counted, with its first
    id, under another lease."""
    ann, bob = await consumer(world, surface), await consumer(world, surface, 1)
    await world.put(b"x")
    one = await ann.next()
    waiting = start(bob.next())
    await ann.release(one, "no")
    again = await waiting
    assert (again.body, again.attempts, again.origin) == (b"x", 1, one.origin)
    assert again.handle != one.handle
    (failure,) = await world.nodes[0].failures()
    assert failure.attempts == 2  # this one included
    await bob.settle(again)
    assert await world.nodes[0].failures() == []


@every_surface
async def test_not_before_its_time(dsn: str, surface: type[Consumer]) -> None:
    """Until the retry delay is over a failed message is listed, and not there for any consumer."""
    async with open_world(dsn, PATIENT) as world:
        ann = await consumer(world, surface)
        await world.put(b"x")
        await ann.release(await ann.next(), "too hot")
        assert await world.nodes[0].leases.return_due() == 0
        assert (await world.ready(), await world.in_hand()) == ([], 1)
        (failure,) = await world.nodes[0].failures()
        assert (failure.destination, failure.attempts, failure.reason) == ("/queue/jobs", 1, "too hot")


@every_surface
async def test_dead_letters(world: World, surface: type[Consumer]) -> None:
    """After the last attempt a message is in the queue dead/jobs, with its history in headers."""
    ann = await consumer(world, surface)
    await world.put(Letter(b"x", 7, headers='{"a": "b"}'))
    origins = set()
    for n in range(QUICK.max_attempts):
        one = await ann.next()
        assert one.attempts == n
        origins.add(one.origin)
        await ann.release(one, f"reason {n}")
    dead = await world.nodes[0].queues.find("dead/jobs")
    (letter,) = await world.nodes[0].queues.take(dead.queue_id, wait=60)
    assert (letter.body, letter.priority) == (b"x", 7)
    headers = json.loads(letter.headers or "")
    assert (headers["a"], headers["dead-attempts"], headers["dead-reason"]) == ("b", "3", "reason 2")
    assert headers["dead-destination"] == "/queue/jobs"
    (origin,) = origins
    assert origin is None or headers["dead-message-id"].endswith(str(origin))
    assert await world.in_hand() == 0
    assert await world.nodes[0].failures() == []


@surfaces_that_notice
async def test_a_consumer_that_leaves(world: World, surface: type[Consumer]) -> None:
    """What a consumer had in hand when it left, or when its time was over, comes to another, counted; what it
    had settled does not."""
    ann, bob = await consumer(world, surface), await consumer(world, surface, 1)
    await world.put(b"done", b"in hand")
    await ann.settle(await ann.next())
    one = await ann.next()
    waiting = start(bob.next())
    await ann.leave()
    again = await waiting
    assert (again.body, again.attempts, again.origin) == (b"in hand", 1, one.origin)
    (failure,) = await world.nodes[0].failures()
    assert failure.reason in {"the connection was lost", "not acknowledged in time"}


@surfaces_that_wait
async def test_gone_while_it_waits(world: World, surface: type[Consumer]) -> None:
    """A consumer that left while it waited gets nothing: the message is for the next one, uncounted."""
    ann, bob = await consumer(world, surface), await consumer(world, surface)
    waiting = start(ann.next())
    await until_waiting_for(ann.node, world.queue_id)
    await leave(ann, waiting)
    await until_waiting_for(ann.node, world.queue_id, 0)
    await world.put(b"x")
    assert (await bob.next()).attempts == 0


@surfaces_that_wait
async def test_gone_before_its_answer(world: World, surface: type[Consumer]) -> None:
    """What was leased for a consumer that had gone by then goes back, uncounted."""
    ann, bob = await consumer(world, surface), await consumer(world, surface, 1)
    await world.put(b"x")
    opened = gate_leases(ann.node)
    waiting = start(ann.next())
    await until_held(world.connection, 1)
    await leave(ann, waiting)
    opened.set()
    assert (await bob.next()).attempts == 0


async def leave(one: Consumer, waiting: "asyncio.Future[Delivery]") -> None:
    """End a consumer and what it waits for."""
    waiting.cancel()
    await asyncio.wait([waiting])
    if isinstance(one, Stomp | Native):
        await one.leave()
    await until(lambda: not any(one.node.queues._room._waiters.values()))  # noqa: SLF001
