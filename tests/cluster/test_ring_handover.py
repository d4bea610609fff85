"""Adding a node to a ring that is in use: nothing is lost, and nobody reads what is outdated."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cluster.lease_time import FastClock, ManualClock
from cluster.storage_history import History
from cluster.storage_world import Network, key_of, node, ring
from nuncius.ring import handover as ring_handover
from nuncius.ring.handover import CannotJoin
from nuncius.ring.lease_clock import Clock
from nuncius.ring.peers import Unreached
from nuncius.ring.ring import NodePlace, Ring, more_ids
from nuncius.ring.settings import RingSettings
from nuncius.ring.storage import KeyStatus, StorageError
from nuncius.ring.storage_node import StorageNode
from nuncius.ring.storage_ring import RingStorage
from nuncius.store.calls.keys import ReadCall
from nuncius.store.errors import StoreUnavailable
from racing import until

pytestmark = pytest.mark.usefixtures("registering_often")
JOIN = RingSettings(7, 1, "n0", 8, join=True)


@pytest.fixture(autouse=True)
def trying_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_handover, "RETRY_SECONDS", 0.01)


@asynccontextmanager
async def newcomer(
    network: Network, dsn: str, clock: Clock | None = None, settings: RingSettings = JOIN
) -> AsyncIterator[StorageNode]:
    """A node that is about to join."""
    async with node(network, dsn, "new", settings, clock) as made:
        yield made


async def fill(nodes: list[RingStorage], count: int = 400) -> list[str]:
    """Keys everywhere: values, lists, both."""
    keys = [f"{n}user{n}:x" for n in range(count)]
    await asyncio.gather(
        *(nodes[0].put(key, f"value of {key}") for key in keys[::2]),
        *(nodes[1].append(key, item) for key in keys[1:] for item in ("a", "b", "\udcff")),
    )
    return keys


async def check(node: RingStorage, keys: list[str]) -> None:
    values = [f"value of {key}" if n % 2 == 0 else None for n, key in enumerate(keys)]
    assert await node.get_many(keys) == values
    lists: list[list[str]] = [sorted(each) for each in await node.get_lists(keys)]
    assert lists == [[], *[["a", "b", "\udcff"]] * (len(keys) - 1)]


async def test_a_node_takes_over_its_keys(dsns: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What belongs to the newcomer moves to its store, and only that; every node knows the new ring."""
    monkeypatch.setattr(ring_handover, "ROWS", 30)
    monkeypatch.setattr(ring_handover, "BYTES", 300)
    network = Network()
    async with ring(network, dsns[:2]) as nodes, newcomer(network, dsns[2]) as new:
        keys = await fill(nodes)
        found = await new.enter("new")
        assert found.version == 2
        for each in (*nodes, new.storage):
            assert each.ring is not None
            assert each.ring.places == found.places
            await check(each, keys)
        moved = [key for key in keys if found.owner(key) == "new"]
        assert 20 < len(moved) < 380
        lists = await new.store.query("select count(*) from nuncius.key_lists")
        assert lists[0][0] == len(set(moved) - {keys[0]})
        left = 0
        for name in ("n0", "n1"):
            left += (await network.nodes[name].store.query("select count(*) from nuncius.key_values"))[0][0]
        assert left == len([key for key in keys[::2] if key not in moved])
        assert await nodes[0].append(moved[0], "c") is KeyStatus.OK
        assert "c" in await new.storage.get_list(moved[0])


async def test_it_stays_after_a_restart(dsns: list[str]) -> None:
    """The whole ring is started again as it was: the newcomer is a node like the others."""
    network = Network()
    async with ring(network, dsns[:2]) as nodes, newcomer(network, dsns[2]) as new:
        keys = await fill(nodes, 60)
        await new.enter("new")
    async with ring(network, dsns[:2]) as nodes, newcomer(network, dsns[2]) as new:
        assert (await new.enter("new")).version == 2
        await check(nodes[1], keys)
        assert network.calls["take"] > 0


async def test_leases_end_before_keys_move(dsns: list[str]) -> None:
    """A holder that does not give back holds the change of the ring up, but not reading; no lease is granted
    of what is about to move."""
    network, clock = Network(), ManualClock()
    async with ring(network, dsns[:2], clock) as nodes, newcomer(network, dsns[2], clock) as new:
        places = [NodePlace(each, "new") for each in _ids()]
        assert nodes[0].ring is not None
        after = nodes[0].ring.with_places(places)
        key = next(
            name for name in (key_of(nodes[0], 1, n) for n in range(200)) if after.owner(name) == "new"
        )
        await nodes[1].put(key, "old")
        for _ in range(3):
            await nodes[0].get(key)
        network.silent.add("n0")
        entering = asyncio.ensure_future(new.enter("new"))
        await until(lambda: network.revoked)
        writing = asyncio.ensure_future(nodes[1].put(key, "new"))
        found = await nodes[1].read_for(False, [key], [True], "somebody")
        assert (found[0].value, found[0].lease_seconds) == ("old", 0)
        assert await nodes[0].get(key) == "old"
        await clock.advance(6.1)
        await entering
        await writing
        assert [await each.get(key) for each in (*nodes, new.storage)] == ["new"] * 3


def _ids() -> list[int]:
    return more_ids(JOIN.node_id, JOIN.ids)


async def test_joining_that_is_interrupted(dsns: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer, or an owner, that fails on the way leaves the ring as it was; the next try succeeds."""
    network = Network()
    async with ring(network, dsns[:2]) as nodes:
        keys = await fill(nodes, 100)
        async with newcomer(network, dsns[2]) as new:
            monkeypatch.setattr(new.handover, "take", _fail)
            entering = asyncio.ensure_future(new.enter("new"))
            await until(lambda: network.calls["join"] >= 2)
            await check(nodes[0], keys)
            entering.cancel()
        await asyncio.gather(entering, return_exceptions=True)
        async with newcomer(network, dsns[2]) as new:
            for name in ("n0", "n1"):
                keys_of = network.nodes[name].keys
                monkeypatch.setattr(keys_of, "note", _once_failing(keys_of.note))
            await new.enter("new")
            for each in (*nodes, new.storage):
                await check(each, keys)


async def _fail(*_: object) -> None:
    raise StorageError("not now")


def _once_failing(real: object) -> object:
    calls = 0

    async def note(*arguments: object, **options: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise StorageError("not now")
        await real(*arguments, **options)  # type: ignore[operator]

    return note


async def test_joining_that_fails_for_good(dsns: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer that is not where it says, or does not take its keys, has changed nothing for anybody."""
    network = Network()
    async with ring(network, dsns[:2]) as nodes:
        handover = network.nodes["n0"].handover
        with pytest.raises(Unreached, match="nowhere"):
            await handover.join([NodePlace(5, "nowhere")])
        async with newcomer(network, dsns[2]) as new:
            monkeypatch.setattr(new.handover, "take", _fail)
            with pytest.raises(StorageError, match="not now"):
                await handover.join([NodePlace(5, "new")])
        assert [each.ring.version for each in nodes if each.ring] == [1, 1]
        await check(nodes[1], await fill(nodes, 40))


async def test_a_commit_that_waits_for_the_store(dsns: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its keys are on their way an owner does not turn back: it waits until its store has taken it in.
    Reads of those keys wait with it."""
    network = Network()
    async with ring(network, dsns[:2]) as nodes, newcomer(network, dsns[2]) as new:
        keys = await fill(nodes, 40)
        broken = asyncio.Event()
        tries = 0
        real = network.nodes["n1"].keys.note

        async def note(*arguments: object, **options: object) -> None:
            nonlocal tries
            tries += 1
            if not broken.is_set():
                raise StoreUnavailable("away")
            await real(*arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(network.nodes["n1"].keys, "note", note)
        entering = asyncio.ensure_future(new.enter("new"))
        await until(lambda: tries >= 2)
        reading = asyncio.ensure_future(check(nodes[1], keys))
        writing = asyncio.ensure_future(asyncio.gather(*(nodes[1].put(key, "w") for key in keys[::2])))
        await until(lambda: network.calls["read"] > 0)
        assert not entering.done()
        reading.cancel()
        broken.set()
        await entering
        await writing
        assert await new.storage.get_many(keys[::2]) == ["w"] * 20


async def test_a_look_that_takes_long(dsns: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that was under way while its key left does not say that there is no such key."""
    network = Network()
    async with ring(network, dsns[:2]) as nodes, newcomer(network, dsns[2]) as new:
        assert nodes[1].ring is not None
        after = nodes[1].ring.with_places([NodePlace(each, "new") for each in _ids()])
        names = [key_of(nodes[1], 1, n) for n in range(200)]
        moved = [name for name in names if after.owner(name) == "new"][:2]
        for key in moved:
            await nodes[1].put(key, key)
        keys = network.nodes["n1"].keys
        real = keys.read_soon
        held: list[ReadCall] = []
        monkeypatch.setattr(keys, "read_soon", held.append)
        one = asyncio.ensure_future(nodes[1].get(moved[0]))
        both = asyncio.ensure_future(nodes[1].get_many(moved))
        await until(lambda: len(held) == 2)
        await new.enter("new")
        monkeypatch.setattr(keys, "read_soon", real)
        for call in held:
            real(call)
        assert await one == moved[0]
        assert await both == moved


async def test_what_cannot_join(dsns: list[str]) -> None:
    """An id that is taken, other ids than before, a ring that is not complete: each is said."""
    network = Network()
    async with ring(network, dsns[:2]) as nodes, newcomer(network, dsns[2]) as new:
        handover = network.nodes["n0"].handover
        with pytest.raises(CannotJoin, match="is taken"):
            await handover.join([NodePlace(nodes[0].ring.places[0].node_id, "x")])  # type: ignore[union-attr]
        with pytest.raises(CannotJoin, match="with other ids"):
            await handover.join([NodePlace(1, "n1")])
        with pytest.raises(CannotJoin, match="n1 is not the master of a ring"):
            await network.nodes["n1"].handover.join([NodePlace(1, "x")])
        with pytest.raises(CannotJoin, match="not complete"):
            await new.handover.join([NodePlace(1, "x")])
        with pytest.raises(CannotJoin, match="in no ring"):
            await new.handover.change(Ring([NodePlace(1, "x")], 5))
        with pytest.raises(CannotJoin, match="not finished"):
            await handover.change(Ring([NodePlace(1, "x")], 1))
        with pytest.raises(CannotJoin, match="in a ring already"):
            await handover.take([], [])


@pytest.mark.parametrize("seed", [1, 2])
async def test_adding_a_node_under_load(dsns: list[str], seed: int) -> None:
    """Readers, writers and appenders at all nodes while a node joins: every key stays linearizable, and no
    item is lost."""
    network = Network(seed, 0.003)
    clock = FastClock(20)
    async with ring(network, dsns[:2], clock) as nodes, newcomer(network, dsns[2], clock) as new:
        keys = [f"{n}user{n}:x" for n in range(6)]
        places = [NodePlace(each, "new") for each in _ids()]
        assert nodes[0].ring is not None
        after = nodes[0].ring.with_places(places)
        assert {after.owner(key) for key in keys} >= {"new"}
        await fill(nodes, 100)
        histories = {key: History() for key in keys}
        joined = asyncio.Event()
        appended: dict[str, list[str]] = {key: [] for key in keys}
        await asyncio.gather(*(histories[key].write("start", nodes[0].put(key, "start")) for key in keys))

        async def reader(each: RingStorage, key: str) -> None:
            rounds = 0
            while not joined.is_set() or rounds < 30:
                rounds += 1
                await histories[key].read(each.get(key))
                await asyncio.sleep(network.random.random() * 0.003)

        async def writer(each: RingStorage, key: str, name: str) -> None:
            n = 0
            while not joined.is_set() or n < 5:
                n += 1
                await histories[key].write(f"{name} {n}", each.put(key, f"{name} {n}"))
                assert await each.append(f"{key}-list", f"{name} {n}") is KeyStatus.OK
                appended[key].append(f"{name} {n}")

        async def join() -> None:
            await until(lambda: sum(map(len, appended.values())) > 20)
            await new.enter("new")
            await asyncio.gather(*(histories[key].read(new.storage.get(key)) for key in keys))
            joined.set()

        async with asyncio.timeout(60):
            await asyncio.gather(
                join(),
                *(reader(each, key) for each in nodes for key in keys),
                *(writer(each, key, f"w{n}") for n, each in enumerate(nodes) for key in keys),
            )
        for key in keys:
            assert histories[key].fault() is None
            assert sorted(await nodes[0].get_list(f"{key}-list")) == sorted(appended[key])
