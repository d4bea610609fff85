"""Leases by a clock that the test holds: who gets one, who waits for whom, and for how long."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from cluster.lease_time import ManualClock, settle
from nuncius.ring import lease_queries
from nuncius.ring.lease_queries import Queries
from nuncius.ring.leases import MARK_SECONDS, GrantedLeases


class Holders:
    """Those who hold leases: they answer when the test lets them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.answers: dict[str, asyncio.Future[bool]] = {}

    async def revoke(self, holder: str, key: str) -> bool:
        self.asked.append((holder, key))
        return await self.answers.setdefault(holder, asyncio.get_running_loop().create_future())


class World:
    def __init__(self, noted: float = 0.0, most: int = 1000) -> None:
        self.clock = ManualClock()
        self.holders = Holders()
        self.notes: list[float] = []
        self.leases = GrantedLeases(self.clock, self.holders.revoke, self.note, noted=noted, most=most)
        self.written: list[str] = []

    async def note(self, until: float) -> None:
        self.notes.append(until)

    async def granted(self, key: str, holder: str) -> bool:
        await self.leases.prepare()
        return self.leases.grant(key, holder)

    async def write(self, key: str) -> None:
        async with self.leases.modifying(key):
            self.written.append(key)

    def begin(self, key: str) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.write(key))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    yield World()
    await settle()


async def test_a_write_without_leases(world: World) -> None:
    """Nobody is asked, nothing is waited for."""
    await world.write("k")
    assert world.written == ["k"]
    assert world.holders.asked == []


async def test_a_write_asks_every_holder(world: World) -> None:
    """It goes ahead when all have said yes, and not before."""
    assert await world.granted("k", "a")
    assert await world.granted("k", "b")
    writing = world.begin("k")
    await settle()
    assert sorted(world.holders.asked) == [("a", "k"), ("b", "k")]
    world.holders.answers["a"].set_result(True)
    await settle()
    assert world.written == []
    world.holders.answers["b"].set_result(True)
    await writing
    assert len(world.leases) == 0
    await world.write("k")
    assert len(world.holders.asked) == 2


@pytest.mark.parametrize("answer", ["never", "no", "error"])
async def test_a_holder_that_does_not_give_back(world: World, answer: str) -> None:
    """The write waits until the lease and the guard time are over, and no longer."""
    assert await world.granted("k", "a")
    await world.clock.advance(2)
    writing = world.begin("k")
    await settle()
    if answer == "no":
        world.holders.answers["a"].set_result(False)
    elif answer == "error":
        world.holders.answers["a"].set_exception(ConnectionError("gone"))
    await world.clock.advance(3.99)
    assert world.written == []
    await world.clock.advance(0.02)
    await writing
    assert world.written == ["k"]


async def test_an_expired_lease_is_not_revoked(world: World) -> None:
    """After lease and guard nobody is asked."""
    assert await world.granted("k", "a")
    await world.clock.advance(6.01)
    await world.write("k")
    assert world.holders.asked == []


async def test_a_lease_that_was_granted_again_counts_from_then(world: World) -> None:
    """The later promise is the one that is waited for."""
    assert await world.granted("k", "a")
    await world.clock.advance(4)
    assert await world.granted("k", "a")
    await world.clock.advance(3)
    writing = world.begin("k")
    await world.clock.advance(2.9)
    assert not writing.done()
    await world.clock.advance(0.2)
    await writing


async def test_no_new_leases_meanwhile(world: World) -> None:
    """While a key is being changed nobody gets a lease of it; afterwards they do again."""
    assert await world.granted("k", "a")
    writing = world.begin("k")
    await settle()
    assert not await world.granted("k", "b")
    assert await world.granted("other", "b")
    world.holders.answers["a"].set_result(True)
    await writing
    assert await world.granted("k", "b")


async def test_other_keys_do_not_wait(world: World) -> None:
    """A slow holder delays the key that it holds, and no other."""
    assert await world.granted("k", "a")
    writing = world.begin("k")
    await settle()
    await world.write("other")
    assert world.written == ["other"]
    world.holders.answers["a"].set_result(True)
    await writing


async def test_a_second_write_waits_with_the_first(world: World) -> None:
    """It asks nobody again."""
    assert await world.granted("k", "a")
    first, second = world.begin("k"), world.begin("k")
    await settle()
    assert world.holders.asked == [("a", "k")]
    assert world.written == []
    world.holders.answers["a"].set_result(True)
    await asyncio.gather(first, second)
    assert world.written == ["k", "k"]


async def test_a_writer_who_gives_up(world: World) -> None:
    """The question to the holders stands; until it is settled nobody gets a lease."""
    assert await world.granted("k", "a")
    writing = world.begin("k")
    await settle()
    writing.cancel()
    await settle()
    assert not await world.granted("k", "b")
    second = world.begin("k")
    await settle()
    world.holders.answers["a"].set_result(True)
    await second
    assert world.holders.asked == [("a", "k")]
    assert await world.granted("k", "b")
    third = world.begin("k")
    await settle()
    third.cancel()
    world.holders.answers["b"].set_result(True)
    await settle()
    assert await world.granted("k", "b")


async def test_the_table_is_bounded() -> None:
    """When there are too many leases there are no more; those that are over make room."""
    world = World(most=3)
    assert [await world.granted(f"k{n}", "a") for n in range(5)] == [True, True, True, False, False]
    assert await world.granted("k1", "a")
    await world.clock.advance(6.1)
    assert await world.granted("k4", "a")
    assert len(world.leases) == 1
    assert world.leases.held() == ["k4"]


async def test_nobody_without_an_address_gets_a_lease(world: World) -> None:
    """It could not be revoked; and what is too long for an address is none."""
    assert not await world.granted("k", "")
    assert not await world.granted("k", "x" * 301)


async def test_the_note_covers_every_lease(world: World) -> None:
    """Before a lease is granted it is written down until when it may last, in coarse steps."""
    for _ in range(300):
        assert await world.granted("k", "a")
        assert world.notes[-1] >= world.clock.wall() + 6
        await world.clock.advance(1)
    assert len(world.notes) <= 300 / (MARK_SECONDS / 2) + 1


async def test_without_a_note_there_is_no_lease(world: World) -> None:
    """A lease that the note does not cover is not granted."""
    assert not world.leases.grant("k", "a")
    await world.leases.prepare()
    assert world.leases.grant("k", "a")
    await world.clock.advance(MARK_SECONDS + 1)
    assert not world.leases.grant("k", "a")


@pytest.mark.parametrize(("noted", "waits"), [(4.0, 4.0), (60.0, 6.0), (-1.0, 0.0), (0.0, 0.0)])
async def test_after_a_crash(noted: float, waits: float) -> None:
    """A new process changes nothing before the leases of the last one are over: until the noted time, or as
    long as a lease can last, whichever is sooner."""
    clock = ManualClock()
    world = World(noted=clock.wall() + noted if noted else 0.0)
    writing = world.begin("k")
    await settle()
    if waits:
        await world.clock.advance(waits - 0.01)
        assert not writing.done()
        assert await world.granted("other", "a")
        await world.clock.advance(0.02)
    await writing


async def test_a_clean_end_is_noted(world: World) -> None:
    """Who leaves in order notes what is still promised; without promises the next one need not wait."""
    await world.leases.close()
    assert world.notes == []
    assert await world.granted("k", "a")
    await world.clock.advance(2)
    await world.leases.close()
    assert world.notes[-1] == pytest.approx(world.clock.wall() + 4)
    await world.clock.advance(5)
    await world.leases.close()
    assert world.notes[-1] == 0.0


def test_queries_are_counted() -> None:
    """The third query within five seconds wants a lease, and the first two do not."""
    clock = ManualClock()
    queries = Queries(clock)
    assert [queries.wants_lease("k") for _ in range(4)] == [False, False, True, True]
    assert not queries.wants_lease("other")


async def test_old_queries_do_not_count() -> None:
    """What is longer ago than the window is forgotten."""
    clock = ManualClock()
    queries = Queries(clock)
    found = []
    for _ in range(6):
        found.append(queries.wants_lease("k"))
        await clock.advance(2.6)
    assert found == [False] * 6
    assert [queries.wants_lease("k"), queries.wants_lease("k")] == [False, True]


def test_counting_is_bounded() -> None:
    """Keys that nobody asks for are forgotten first."""
    queries = Queries(ManualClock(), most=2)
    for key in ("a", "b", "a", "c"):
        queries.wants_lease(key)
    assert len(queries) == 2
    assert queries.wants_lease("a")
    assert lease_queries.QUERY_COUNT_SECONDS == 5
