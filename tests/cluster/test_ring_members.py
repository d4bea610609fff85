"""How a ring comes together, and comes back after nodes were away."""

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from cluster.storage_world import Network, node
from nuncius.ring import members as ring_members
from nuncius.ring.members import CannotRegister, Master
from nuncius.ring.ring import NodePlace, Ring
from nuncius.ring.settings import RingSettings
from nuncius.ring.storage_node import StorageNode
from racing import until


def places(*ids: int, at: str) -> list[NodePlace]:
    return [NodePlace(each, at) for each in ids]


def test_a_master_alone() -> None:
    """A ring of one is complete at once; whoever registers gets the list and is not added."""
    master = Master(places(7, at="m"), 1, None)
    assert master.ring is not None
    answer = master.register(places(9, at="a"))
    assert (answer.ready, list(answer.places)) == (True, places(7, at="m"))


def test_nodes_register() -> None:
    """The list is given out when all are there; the same node counts once however often it registers."""
    master = Master(places(1, at="m"), 3, None)
    assert [master.register(places(2, at="a")).ready for _ in range(3)] == [False] * 3
    answer = master.register(places(3, 4, at="b"))
    assert answer.ready
    assert list(answer.places) == [NodePlace(1, "m"), NodePlace(2, "a"), NodePlace(3, "b"), NodePlace(4, "b")]
    assert master.register(places(2, at="a")) == answer


def test_who_only_wants_to_know() -> None:
    """A client without an address does not count as a node."""
    master = Master(places(1, at="m"), 2, None)
    assert not master.register(places(5, at="")).ready
    assert not master.register(places(6, at="")).ready
    assert master.register(places(2, at="a")).ready
    assert len(master.register(places(5, at="")).places) == 2


def test_an_id_is_taken() -> None:
    """Two nodes with one id are not possible; the second hears so."""
    master = Master(places(1, at="m"), 3, None)
    master.register(places(2, at="a"))
    with pytest.raises(CannotRegister, match="2 is taken"):
        master.register(places(2, at="b"))


def test_another_id() -> None:
    """A node that is started again with another id, before all are there, is in the ring with that one; an
    address that is the master's own changes nothing."""
    master = Master(places(1, at="m"), 3, None)
    master.register(places(2, at="a"))
    assert not master.register(places(5, at="a")).ready
    assert not master.register(places(6, at="m")).ready
    with pytest.raises(CannotRegister, match="1 is taken"):
        master.register(places(1, at="a"))
    assert list(master.register(places(2, at="b")).places) == [
        NodePlace(1, "m"),
        NodePlace(2, "b"),
        NodePlace(5, "a"),
    ]


def test_a_ring_comes_back_as_it_was() -> None:
    """The nodes that it began with bring those along that were added later; other nodes make another ring."""
    before = Ring([NodePlace(1, "m"), NodePlace(2, "a"), NodePlace(3, "added")], 2)
    master = Master(places(1, at="m"), 2, before, 2)
    assert master.register(places(2, at="a")).ready
    assert master.ring is before
    master = Master(places(1, at="m"), 2, before, 2)
    assert master.register(places(5, at="b")).ready
    assert master.ring is not None
    assert (list(master.ring.places), master.ring.version) == ([NodePlace(1, "m"), NodePlace(5, "b")], 3)
    master = Master(places(9, at="m"), 2, before, 2)
    master.register(places(2, at="a"))
    assert master.ring is not None
    assert list(master.ring.places) == [NodePlace(2, "a"), NodePlace(9, "m")]


def test_a_ring_of_another_size() -> None:
    """A node that was in a larger ring is alone when it is started alone; who names as many nodes as the ring
    has by now means that ring, whoever was its master."""
    before = Ring([NodePlace(1, "m"), NodePlace(2, "a"), NodePlace(3, "added")], 2)
    for began_with in (0, 2):
        master = Master(places(1, at="m"), 1, before, began_with)
        assert master.ring is not None
        assert (list(master.ring.places), master.ring.version) == (places(1, at="m"), 3)
    master = Master(places(1, at="m"), 1, before, 1)
    assert master.ring is before
    master = Master(places(2, at="a"), 3, before)
    assert not master.register(places(1, at="m")).ready
    assert master.register(places(3, at="added")).ready
    assert master.ring is before


async def entered(made: StorageNode, name: str) -> Sequence[NodePlace]:
    return (await made.enter(name)).places


async def test_nodes_wait_for_each_other(dsns: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A node may come before its master; it tries again, and everybody has the same list in the end. What is
    asked meanwhile is answered then."""
    monkeypatch.setattr(ring_members, "RETRY_SECONDS", 0.01)
    network = Network()
    async with contextlib.AsyncExitStack() as stack:
        second = await stack.enter_async_context(node(network, dsns[1], "n1", RingSettings(20, 1, "n0")))
        entering = [asyncio.ensure_future(entered(second, "n1"))]
        asking = asyncio.ensure_future(second.storage.get("k"))
        await until(lambda: network.calls["register"] >= 2)
        first = await stack.enter_async_context(node(network, dsns[0], "n0", RingSettings(10, 3)))
        assert first.register([NodePlace(1, "x")]).ready is False
        entering.append(asyncio.ensure_future(entered(first, "n0")))
        await until(lambda: network.calls["register"] >= 6)
        assert second.register([NodePlace(1, "x")]).ready is False
        assert not any(each.done() for each in entering)
        third = await stack.enter_async_context(node(network, dsns[2], "n2", RingSettings(30, 1, "n0", 2)))
        found = [await entered(third, "n2"), *await asyncio.gather(*entering)]
        assert found[0] == found[1] == found[2]
        assert [place.host_port for place in found[0]].count("n2") == 2
        assert await asking is None
        assert second.register([NodePlace(1, "x")]).places == found[0]


async def test_a_master_that_was_away(dsns: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds the nodes that are running, which will not register again."""
    monkeypatch.setattr(ring_members, "RETRY_SECONDS", 0.01)
    network = Network()
    async with node(network, dsns[1], "n1", RingSettings(20, 1, "n0")) as second:
        async with node(network, dsns[0], "n0", RingSettings(10, 2)) as first:
            await asyncio.gather(first.enter("n0"), second.enter("n1"))
        away = network.nodes.pop("n1")
        async with node(network, dsns[0], "n0", RingSettings(10, 2)) as first:
            entering = asyncio.ensure_future(first.enter("n0"))
            await until(lambda: network.calls["ring"] >= 2)
            assert not entering.done()
            network.nodes["n1"] = away
            assert (await entering).places == (second.storage.ring and second.storage.ring.places)


async def test_a_node_alone_again(dsns: list[str]) -> None:
    """Nodes of a ring that are started without the others, the master or another, are rings of one."""
    network = Network()
    async with (
        node(network, dsns[0], "n0", RingSettings(10, 2)) as first,
        node(network, dsns[1], "n1", RingSettings(20, 1, "n0")) as second,
    ):
        await asyncio.gather(first.enter("n0"), second.enter("n1"))
    for n, node_id in enumerate((10, 20)):
        async with node(network, dsns[n], f"n{n}", RingSettings(node_id)) as alone:
            assert await entered(alone, f"n{n}") == [NodePlace(node_id, f"n{n}")]


async def test_a_node_that_is_not_of_the_ring(dsns: list[str]) -> None:
    """Who registers with a ring that is complete without it hears what to do."""
    network = Network()
    async with (
        node(network, dsns[0], "n0", RingSettings(10)) as first,
        node(network, dsns[1], "n1", RingSettings(20, 1, "n0")) as second,
    ):
        await first.enter("n0")
        with pytest.raises(CannotRegister, match="-join"):
            await second.enter("n1")


async def test_a_refusal_ends_the_trying(dsns: list[str]) -> None:
    """A node whose id is taken does not ask for ever."""
    network = Network()
    async with (
        node(network, dsns[0], "n0", RingSettings(10, 3)) as first,
        node(network, dsns[1], "n1", RingSettings(10, 1, "n0")) as second,
    ):
        waiting = asyncio.ensure_future(first.enter("n0"))
        await until(lambda: _has_master(first))
        with pytest.raises(CannotRegister, match="taken"):
            await second.enter("n1")
        waiting.cancel()


def _has_master(made: StorageNode) -> bool:
    """Whether it takes registrations: a second one of the same node is not refused."""
    try:
        made.register([NodePlace(10, "x")])
    except CannotRegister:
        return True
    return False
