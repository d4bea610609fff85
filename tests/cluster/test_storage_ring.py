"""Several nodes: forwarding, caching by leases, and that nobody ever reads what is outdated."""

import asyncio
import random

import pytest

from cluster.lease_time import FastClock, ManualClock, settle
from cluster.storage_history import History
from cluster.storage_world import Network, key_of, ring
from nuncius.ring import storage_ring
from nuncius.ring.peers import Unreached
from nuncius.ring.storage import KeyRefused, KeyStatus, Post
from nuncius.ring.storage_ring import RingStorage
from nuncius.store.calls.keys import PUT
from racing import until

pytestmark = pytest.mark.usefixtures("registering_often")


async def test_every_node_sees_every_key(dsns: list[str]) -> None:
    """Whichever node is asked, it is the same store; a key is with its owner and nowhere else."""
    async with ring(Network(), dsns) as nodes:
        keys = [key_of(nodes[0], owner, n) for owner in range(3) for n in range(3)]
        for n, key in enumerate(keys):
            await nodes[n % 3].put(key, f"value of {key}")
            assert await nodes[(n + 1) % 3].append(key, "item") is KeyStatus.OK
            assert await nodes[n % 3].append(key, "item") is KeyStatus.ITEM_EXISTS
        for node in nodes:
            assert await node.get_many([*keys, "nobody:x"]) == [*(f"value of {key}" for key in keys), None]
            assert await node.get_lists([*keys, "nobody:x"]) == [["item"]] * 9 + [[]]
            assert await node.find_lists(["nobody:x", keys[0]]) == [None, ["item"]]
        post = Post(keys[0].split(":")[0] + ":p", "v", keys[0].split(":")[0] + ":l", "1", b"b")
        assert [await node.put_and_publish(post) for node in nodes] == [1, 1, 1]


async def test_many_keys_few_calls(dsns: list[str]) -> None:
    """Each owner is asked once for all its keys."""
    network = Network()
    async with ring(network, dsns) as nodes:
        keys = [key_of(nodes[0], owner, n) for owner in range(3) for n in range(20)]
        await asyncio.gather(*(nodes[0].put(key, key) for key in keys))
        network.calls.clear()
        assert await nodes[0].get_many(keys) == keys
        assert network.calls["read"] == 2


async def test_many_batches(dsns: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Very many keys are asked for in several calls."""
    monkeypatch.setattr(storage_ring, "BATCH", 10)
    network = Network()
    async with ring(network, dsns) as nodes:
        keys = [key_of(nodes[0], 1, n) for n in range(25)]
        await asyncio.gather(*(nodes[1].put(key, key) for key in keys))
        assert await nodes[0].get_many(keys) == keys
        assert network.calls["read"] == 3


async def test_the_third_query_brings_a_lease(dsns: list[str]) -> None:
    """Two queries are sent on; the third comes with a lease; then nobody is asked while it lasts."""
    network, clock = Network(), ManualClock()
    async with ring(network, dsns, clock) as nodes:
        key = key_of(nodes[0], 1)
        await nodes[1].put(key, "v")
        await nodes[1].append(key, "i")
        for asked in (1, 2, 3, 3, 3):
            assert await nodes[0].get(key) == "v"
            assert network.calls["read"] == asked
        await clock.advance(4.99)
        assert await nodes[0].get(key) == "v"
        assert network.calls["read"] == 3
        await clock.advance(0.02)
        assert await nodes[0].get(key) == "v"
        assert network.calls["read"] == 4


async def test_missing_keys_are_not_cached(dsns: list[str]) -> None:
    """A key that is not there comes without a lease, however often it is asked for."""
    network = Network()
    async with ring(network, dsns, ManualClock()) as nodes:
        key = key_of(nodes[0], 1)
        for _ in range(5):
            assert await nodes[0].get(key) is None
        await nodes[1].put(key, "v")
        assert network.revoked == []
        assert await nodes[0].get(key) == "v"


async def test_without_caching(dsns: list[str]) -> None:
    """A ring without caching asks the owner every time."""
    network = Network()
    async with ring(network, dsns, caching=False) as nodes:
        key = key_of(nodes[0], 1)
        await nodes[1].put(key, "v")
        for _ in range(10):
            assert await nodes[0].get(key) == "v"
        assert network.calls["read"] == 10


async def hold(nodes: list[RingStorage], key: str, *holders: int) -> None:
    """Makes these nodes keep the key by a lease."""
    for holder in holders:
        for _ in range(3):
            await nodes[holder].get(key)
        assert nodes[holder].cache.find(False, key, 0.0) is not None


async def test_a_write_revokes(dsns: list[str]) -> None:
    """Every holder gives the key back before it is changed; then each sees the new value."""
    network = Network()
    async with ring(network, dsns, ManualClock()) as nodes:
        key = key_of(nodes[0], 1)
        await nodes[1].put(key, "old")
        await hold(nodes, key, 0, 2)
        await nodes[2].put(key, "new")
        assert sorted(network.revoked) == [("n0", key), ("n2", key)]
        assert [await node.get(key) for node in nodes] == ["new"] * 3


async def test_while_a_holder_is_silent(dsns: list[str]) -> None:
    """The key keeps its old value, without leases; others are changed; after six seconds so is this one."""
    network, clock = Network(), ManualClock()
    async with ring(network, dsns, clock) as nodes:
        key, other = key_of(nodes[0], 1), key_of(nodes[0], 1, 1)
        await nodes[1].put(key, "old")
        await hold(nodes, key, 0)
        network.silent.add("n0")
        writing = asyncio.ensure_future(nodes[1].put(key, "new"))
        await until(lambda: network.revoked)
        second = asyncio.ensure_future(nodes[2].put(key, "newer"))
        await nodes[1].put(other, "v")
        found = await nodes[1].read_for(False, [key, other], [True, True], "somebody")
        assert [(each.value, each.lease_seconds) for each in found] == [("old", 0), ("v", 5)]
        assert await nodes[0].get(key) == "old"
        await clock.advance(5.01)
        assert await nodes[0].get(key) == "old"
        assert not writing.done()
        assert not second.done()
        await clock.advance(1)
        await asyncio.gather(writing, second)
        assert await nodes[0].get(key) == "newer"
        found = await nodes[1].read_for(False, [key], [True], "somebody")
        assert (found[0].value, found[0].lease_seconds) == ("newer", 5)


async def test_a_revocation_overtakes_its_lease(dsns: list[str]) -> None:
    """A lease whose answer is still on its way when it is revoked is not kept."""
    network = Network()
    async with ring(network, dsns, ManualClock()) as nodes:
        key = key_of(nodes[0], 1)
        await nodes[1].put(key, "old")
        await nodes[0].get(key)
        await nodes[0].get(key)
        held_up = asyncio.Event()
        travels = 0

        async def travel() -> None:
            nonlocal travels
            travels += 1
            if travels == 2:
                await held_up.wait()

        network.travel = travel  # type: ignore[method-assign]
        reading = asyncio.ensure_future(nodes[0].get(key))
        await until(lambda: travels == 2)
        await nodes[1].put(key, "new")
        assert network.revoked == [("n0", key)]
        held_up.set()
        assert await reading == "old"
        assert nodes[0].cache.find(False, key) is None
        assert await nodes[0].get(key) == "new"


async def test_a_client_of_its_own(dsns: list[str]) -> None:
    """A client that asks the wrong node for a lease gets it from the owner, in its own name."""
    network = Network()
    async with ring(network, dsns, ManualClock()) as nodes:
        key = key_of(nodes[0], 1)
        await nodes[1].put(key, "v")
        found = await nodes[0].read_for(False, [key, "nobody:x"], [True, False], "n2")
        assert [(each.value, each.lease_seconds) for each in found] == [("v", 5), (None, 0)]
        await nodes[1].put(key, "w")
        assert network.revoked == [("n2", key)]
        found = await nodes[0].read_for(False, [key], [True], "")
        assert (found[0].value, found[0].lease_seconds) == ("w", 0)


async def test_an_owner_that_is_away(dsns: list[str]) -> None:
    """RpcClients wait a while for it to come back, and then hear that it is not there; others do not."""
    network, clock = Network(), ManualClock()
    async with ring(network, dsns, clock) as nodes:
        key, mine = key_of(nodes[0], 1), key_of(nodes[0], 0)
        await nodes[0].put(key, "v")
        away = network.nodes.pop("n1")
        reading = asyncio.ensure_future(nodes[0].get(key))
        writing = asyncio.ensure_future(nodes[0].put(key, "w"))
        await until(lambda: network.calls["read"] + network.calls["write"] >= 3)
        await nodes[0].put(mine, "v")
        network.nodes["n1"] = away
        await writing
        assert await reading in ("v", "w")
        del network.nodes["n1"]
        failing = asyncio.ensure_future(nodes[0].get(key_of(nodes[0], 1, 1)))
        await settle()
        await clock.advance(storage_ring.PATIENCE + 1)
        with pytest.raises(Unreached, match="n1 is not there"):
            await failing
        network.nodes["n1"] = away


async def test_what_is_refused(dsns: list[str]) -> None:
    """A post with keys of two users is refused where it is made."""
    async with ring(Network(), dsns) as nodes:
        with pytest.raises(KeyRefused):
            await nodes[0].put_and_publish(Post("a:1", "v", "b:l", "i", b""))
        with pytest.raises(KeyRefused):
            await nodes[0].write(PUT, "k" * 2000, "v")


async def test_all_append_at_once(dsns: list[str]) -> None:
    """Appends from all nodes to the same lists, cached ones among them: nothing is lost."""
    async with ring(Network(1, 0.002), dsns) as nodes:
        keys = [key_of(nodes[0], owner) for owner in range(3)]

        async def work(node: RingStorage, name: int) -> None:
            for n in range(40):
                for key in keys:
                    assert await node.append(key, f"{name} {n}") is KeyStatus.OK
                    assert f"{name} {n}" in await node.get_list(key)

        await asyncio.gather(*(work(node, n) for n, node in enumerate(nodes)))
        for key in keys:
            found = await nodes[0].get_list(key)
            assert len(found) == 120
            for name in range(3):
                assert [each for each in found if each.startswith(f"{name} ")] == [
                    f"{name} {n}" for n in range(40)
                ]


@pytest.mark.parametrize(("seed", "trouble"), [(1, "none"), (2, "late"), (3, "silent"), (4, "both")])
async def test_single_keys_are_linearizable(dsns: list[str], seed: int, trouble: str) -> None:
    """Readers and writers at all nodes, with random delays and holders that answer late or never: there is an
    order of all operations on a key that explains what everybody saw. Time runs twenty times as fast."""
    network = Network(seed, 0.004)
    if trouble in ("late", "both"):
        network.late["n0"] = 0.03
    if trouble in ("silent", "both"):
        network.silent.add("n2")
    chance = random.Random(seed)
    async with ring(network, dsns, FastClock(20)) as nodes:
        keys = [key_of(nodes[0], 1), key_of(nodes[0], 1, 1)]
        histories = {key: History() for key in keys}
        leases = 0

        async def reader(node: RingStorage, key: str) -> None:
            nonlocal leases
            for _ in range(150):
                await histories[key].read(node.get(key))
                leases += node.cache.find(False, key) is not None
                await asyncio.sleep(chance.random() * 0.004)

        async def writer(node: RingStorage, key: str, name: str) -> None:
            for n in range(6):
                await histories[key].write(f"{name} {n}", node.put(key, f"{name} {n}"))
                await asyncio.sleep(chance.random() * 0.1)

        await asyncio.gather(
            *(reader(node, key) for node in nodes for key in keys for _ in range(2)),
            *(writer(node, key, f"w{n}") for n, node in enumerate(nodes) for key in keys),
        )
        assert leases > 0
        assert network.revoked
        for key in keys:
            assert histories[key].fault() is None
