"""The table of nodes, and who is given which partition."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import asyncpg
import pytest

from cluster.inside import node
from nuncius.broker import Broker
from nuncius.broker.errors import InvalidInput
from nuncius.cluster.members import ClusterMember, ClusterMembers, NoSuchBroker
from nuncius.cluster.placement import Placement
from nuncius.cluster.watching import Watch
from nuncius.store.driver import Connection
from nuncius.store.store import Store
from racing import until

HOST = "127.0.0.1"
SILENCE = 5.0


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[Store]:
    opened = Store(dsn)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def members(store: Store) -> ClusterMembers:
    return ClusterMembers(store)


@pytest.fixture
def placement(store: Store) -> Placement:
    return Placement(store, SILENCE)


async def forget(connection: Connection, node_id: int) -> None:
    """The node was last heard a while ago."""
    await connection.execute(
        "update nuncius.nodes set last_heard = now() - interval '6 seconds' where node_id = $1", node_id
    )


async def topic(connection: Connection, partitions: int) -> int:
    number: int = await connection.fetchval("select nuncius.create_topic('news', $1)", partitions)
    return number


async def brokers_of(placement: Placement, topic_id: int) -> set[int | None]:
    return set((await placement.route(topic_id)).brokers)


async def test_numbers(members: ClusterMembers) -> None:
    """Brokers are counted from 1, whatever else is there, and keep their number over restarts."""
    await members.enter(HOST, 5000, 0, ("balancer",))
    first = await members.enter(HOST, 1000, 41, ("broker",))
    await members.enter(HOST, 1100, 42, ("writer", "broker"))
    assert await members.enter(HOST, 1000, 43, ("broker",)) == first
    assert [(m.broker_id, m.port, m.link_port) for m in await members.brokers()] == [
        (1, 1000, 43),
        (2, 1100, 42),
    ]
    assert [m.roles for m in await members.everybody()] == [("balancer",), ("broker",), ("writer", "broker")]


async def test_a_store_moves(members: ClusterMembers) -> None:
    """A broker is known by its own store, wherever it starts."""
    first = await members.enter(HOST, 1000, 41, ("broker",), 2)
    await members.enter(HOST, 1100, 42, ("broker",))
    assert await members.enter(HOST, 1100, 43, ("broker",), 2) == first
    assert [(m.broker_id, m.port, m.store_id) for m in await members.everybody()] == [(1, 1100, 2)]


async def test_silence(connection: Connection, members: ClusterMembers) -> None:
    """A node that is not heard for a while is not alive; one that says goodbye is not listed, at once."""
    first = await members.enter(HOST, 1000, 41, ("broker",))
    second = await members.enter(HOST, 1100, 42, ("broker",))
    await forget(connection, first)
    await members.leave(second, 42)
    assert [(m.port, m.is_alive) for m in await members.everybody()] == [(1000, False)]
    assert await members.hear(first)
    assert [(m.port, m.is_alive) for m in await members.everybody()] == [(1000, True)]
    assert not await members.hear(99)


HOLDER = 4711


@pytest.fixture
async def life(dsn: str) -> AsyncIterator[Connection]:
    """A connection that holds the lock of a node, as long as it lives."""
    opened = await asyncpg.connect(dsn)
    await opened.fetch("select pg_advisory_lock(78009, $1)", HOLDER)
    yield opened
    await opened.close()


async def test_a_silent_node_that_lives(
    connection: Connection, members: ClusterMembers, life: Connection
) -> None:
    """A silent node stays in the list as long as its lock is held; when that is free, the node has ended, and
    the list and the activity of brokers know it no more."""
    silent = await members.enter(HOST, 1000, 41, ("broker",), holder=HOLDER)
    await forget(connection, silent)
    await connection.execute("select nuncius.note_brokers()")
    assert [(m.broker_id, m.is_alive) for m in await members.everybody()] == [(1, False)]
    assert await connection.fetchval("select count(*) from nuncius.list_actors(300)") == 1
    await life.close()
    await until(lambda: is_free(connection))
    assert await members.everybody() == []
    await connection.execute("select nuncius.note_brokers()")
    assert await connection.fetchval("select count(*) from nuncius.list_actors(300)") == 0
    assert await connection.fetchval("select nodes from nuncius.overview(300, 5)") == 0


async def is_free(connection: Connection) -> bool:
    """Whether the server has noticed that the node's connection is gone."""
    locks = "select count(*) from pg_locks where locktype = 'advisory' and classid = 78009 and objid = $1"
    held: int = await connection.fetchval(locks, HOLDER)
    return held == 0


async def test_a_silent_node_is_heard_again(connection: Connection, members: ClusterMembers) -> None:
    """A node whose lock is free but which is heard has not ended: it is about to take its lock again."""
    node_id = await members.enter(HOST, 1000, 41, ("broker",), holder=HOLDER)
    assert [m.port for m in await members.everybody()] == [1000]
    await forget(connection, node_id)
    assert await members.everybody() == []
    assert await members.hear(node_id)
    assert [(m.port, m.broker_id) for m in await members.everybody()] == [(1000, 1)]


async def test_a_broker_with_a_store_is_waited_for(connection: Connection, members: ClusterMembers) -> None:
    """A broker with a store of its own stays in the list when it has ended, because its entries are there."""
    killed = await members.enter(HOST, 1000, 41, ("broker",), 2, holder=HOLDER)
    stopped = await members.enter(HOST, 1100, 42, ("broker",), 3, holder=HOLDER + 1)
    await forget(connection, killed)
    await members.leave(stopped, 42)
    assert [(m.port, m.is_alive) for m in await members.everybody()] == [(1000, False), (1100, False)]


async def test_a_balancer_has_no_lock(connection: Connection, members: ClusterMembers) -> None:
    """A node without a lock has ended after a minute of silence."""
    balancer = await members.enter(HOST, 5000, 0, ("balancer",))
    await forget(connection, balancer)
    assert [m.is_alive for m in await members.everybody()] == [False]
    await connection.execute("update nuncius.nodes set last_heard = now() - interval '61 seconds'")
    assert await members.everybody() == []


async def test_numbers_are_given_again(connection: Connection, members: ClusterMembers) -> None:
    """A broker that has ended keeps its number for its return, until another broker starts: then that one
    has it. Restarts under ever new addresses burn no numbers."""
    ended = await members.enter(HOST, 999, 40, ("broker",))
    for n in range(25):
        ended = await members.enter(HOST, 1000 + n, 41, ("broker",), holder=HOLDER)
        await forget(connection, ended)
    assert await members.enter(HOST, 1024, 42, ("broker",)) == ended
    assert [(m.broker_id, m.port) for m in await members.everybody()] == [(1, 999), (2, 1024)]
    await members.leave(ended, 42)
    assert await members.add_broker(2000) == 2
    assert await members.enter(HOST, 1024, 43, ("broker",)) != ended
    assert [(m.broker_id, m.port) for m in await members.everybody()] == [(1, 999), (2, 2000), (3, 1024)]


async def test_adding_one_that_has_ended(members: ClusterMembers) -> None:
    """A broker that has ended and is added by its port is waited for, under its number."""
    ended = await members.enter(HOST, 1000, 41, ("broker",))
    await members.leave(ended, 41)
    assert await members.everybody() == []
    assert await members.add_broker(1000) == 1
    await members.enter(HOST, 1100, 42, ("broker",))
    assert [(m.broker_id, m.port) for m in await members.everybody()] == [(1, 1000), (2, 1100)]


async def test_a_killed_node_is_forgotten(dsn: str, connection: Connection) -> None:
    """Other nodes forget a killed node when it is silent and its lock is free."""
    async with (
        node(dsn, "broker", port=1100, silence=0.3) as other,
        node(dsn, "broker", port=1000, silence=0.3) as killed,
    ):
        assert await connection.fetchval("select holder from nuncius.nodes where port = 1000")
        await killed.crash()
        await killed.broker.close()  # and so its connections end
        await until(lambda: list(other.participant.router.forwarding.members) == [1])


async def test_one_of_several_processes_leaves(members: ClusterMembers) -> None:
    """A node with several processes is there as long as the one that is known."""
    first = await members.enter(HOST, 1000, 41, ("broker",))
    assert await members.enter(HOST, 1000, 42, ("broker",)) == first
    await members.leave(first, 41)
    assert [m.is_alive for m in await members.everybody()] == [True]


async def test_added_before_it_starts(
    connection: Connection, members: ClusterMembers, placement: Placement
) -> None:
    """A broker may be counted on before it starts; it is given nothing until then."""
    assert await members.add_broker(1000) == 1
    topic_id = await topic(connection, 2)
    assert await brokers_of(placement, topic_id) == {None}
    await members.enter(HOST, 1000, 41, ("broker",))
    assert await brokers_of(placement, topic_id) == {1}


async def test_added_on_another_host(members: ClusterMembers) -> None:
    """A broker is found by its port wherever it is, and first where it is looked for."""
    await members.enter("far", 1000, 41, ("broker",))
    assert await members.add_broker(1000) == 1
    await members.enter(HOST, 1000, 41, ("broker",))
    assert await members.add_broker(1000) == 2


async def test_no_broker(members: ClusterMembers) -> None:
    """A node that is something else is not counted on, and is given nothing."""
    await members.enter(HOST, 6001, 41, ("reader",))
    with pytest.raises(InvalidInput, match="the node at port 6001 is no broker"):
        await members.add_broker(6001)
    assert await members.brokers() == []
    await members.enter("far", 6001, 41, ("broker",))
    assert await members.add_broker(6001) == 1


async def test_only_healthy_ones(
    connection: Connection, members: ClusterMembers, placement: Placement
) -> None:
    """Silent, removed and departed brokers get no new partitions, and lose those of the common store."""
    ids = [await members.enter(HOST, 1000 + n, 41, ("broker",)) for n in range(4)]
    await members.enter(HOST, 7001, 41, ("writer",))
    topic_id = await topic(connection, 100)
    assert await brokers_of(placement, topic_id) == {1, 2, 3, 4}
    await forget(connection, ids[0])
    await members.remove_broker(2)
    await members.leave(ids[2], 41)
    assert await placement.reassign() > 0
    assert await placement.reassign() == 0
    assert await brokers_of(placement, topic_id) == {4}
    await forget(connection, ids[3])
    assert await placement.reassign() == 0  # nobody is left to take them
    with pytest.raises(NoSuchBroker, match="there is no broker 9"):
        await members.remove_broker(9)


async def test_the_silent_are_not_chosen(
    connection: Connection, members: ClusterMembers, placement: Placement
) -> None:
    """Of healthy brokers those get partitions that were heard a moment ago; if there are none, the others."""
    ids = [await members.enter(HOST, 1000 + n, 41, ("broker",)) for n in range(2)]
    await connection.execute(
        "update nuncius.nodes set last_heard = clock_timestamp() - interval '3 seconds' where node_id = $1",
        ids[0],
    )
    placement.silence = 60.0
    topic_id = await topic(connection, 50)
    assert await brokers_of(placement, topic_id) == {2}
    await members.leave(ids[1], 41)
    assert await placement.reassign() == 50
    assert await brokers_of(placement, topic_id) == {1}


async def test_what_has_entries_stays(
    connection: Connection, members: ClusterMembers, placement: Placement
) -> None:
    """An empty partition goes to the store of its broker; one with entries stays where they are, and the
    broker serves it there."""
    await members.enter(HOST, 1000, 41, ("broker",), 2)
    topic_id = await topic(connection, 2)
    await connection.execute("select nuncius.publish('news', 'x', partition => 1)")
    route = await placement.route(topic_id)
    assert (route.stores, route.brokers) == ((1, 2), (1, 1))
    assert not route.is_common
    assert await placement.elsewhere() == {route.partition_ids[1]: 2}
    await members.remove_broker(1)
    assert (await placement.route(topic_id)).brokers == (1, 1)  # there is nobody else


async def test_tidying(connection: Connection, members: ClusterMembers, placement: Placement) -> None:
    """Nodes that were silent for a day and have nothing are forgotten, and claims nobody repeats."""
    await members.enter(HOST, 1000, 41, ("broker",))
    await placement.route(await topic(connection, 1))
    await members.enter(HOST, 1001, 41, ("broker",))
    await members.enter(HOST, 1002, 41, ("broker",), 2)
    await connection.execute("update nuncius.nodes set last_heard = now() - interval '2 days'")
    await connection.execute(
        "insert into nuncius.claims select n, 1, 1, '1', now() - make_interval(days => n)"
        " from generate_series(0, 2) n"
    )
    await placement.tidy()
    assert [m.port for m in await members.everybody()] == [1000, 1002]
    assert await connection.fetchval("select count(*) from nuncius.claims") == 1


async def test_a_node_that_was_forgotten(dsn: str, connection: Connection) -> None:
    """It enters again by itself, and others hear of it."""
    heard: list[tuple[ClusterMember, ...]] = []
    async with node(dsn, "broker", port=1000) as made:
        made.participant.on_members = lambda members: heard.append(tuple(members))
        await connection.execute("delete from nuncius.nodes")
        await until(lambda: heard and heard[-1] and heard[-1][0].port == 1000)


async def test_the_store_is_away(dsn: str, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """A look at the cluster that fails is said, and tried again."""
    del broker
    async with node(dsn, "broker", port=1000) as made:
        original = made.participant.members.hear

        async def fails(node_id: int) -> bool:
            made.participant.members.hear = original  # type: ignore[method-assign]
            raise ValueError(node_id)

        made.participant.members.hear = fails  # type: ignore[method-assign]
        await until(lambda: "a look at the cluster failed by a fault of ours" in caplog.text)


class Said(ClusterMembers):
    """A table of nodes that is nothing but a list of who said and asked what."""

    def __init__(self) -> None:
        self.silence = 0.0
        self.words: list[str] = []

    async def enter(
        self,
        host: str,
        port: int,
        link_port: int,
        roles: Sequence[str],
        store_id: int = 1,
        holder: int | None = None,
    ) -> int:
        del host, link_port, roles, store_id, holder
        return port

    async def hear(self, node_id: int) -> bool:
        self.words.append(f"{node_id} is there")
        return True

    async def everybody(self) -> list[ClusterMember]:
        self.words.append("who is?")
        return []

    async def leave(self, node_id: int, link_port: int) -> None:
        """Nobody has to know."""


async def test_the_store_is_back() -> None:
    """After a time without the store, which was one for all, a node gives the others a moment to be heard
    before it looks who is missing."""
    table = Said()

    async def heard(members: Sequence[ClusterMember]) -> None:
        assert not members

    watches = [Watch(table, heard, 0.05) for _ in range(2)]
    await asyncio.gather(*(watch.begin(HOST, 1 + n, 0, ()) for n, watch in enumerate(watches)))
    table.words.clear()
    await until(lambda: len(table.words) >= 4)
    for watch in watches:
        await watch.end()
    assert table.words[:4] == ["1 is there", "2 is there", "who is?", "who is?"]


async def shares(connection: Connection) -> list[tuple[int, int]]:
    rows = await connection.fetch(
        "select broker_id, count(*) from nuncius.assignments group by broker_id order by 1"
    )
    return [tuple(row) for row in rows]


async def test_rebalancing(connection: Connection, members: ClusterMembers, placement: Placement) -> None:
    """Partitions move back to brokers that came back: as few as give every broker an equal share."""
    await members.enter(HOST, 1000, 41, ("broker",))
    topic_id = await topic(connection, 10)
    await placement.route(topic_id)
    assert await placement.rebalance() == 0
    await members.enter(HOST, 1100, 42, ("broker",))
    await members.enter(HOST, 1200, 43, ("broker",))
    assert await placement.rebalance() == 6
    assert await shares(connection) == [(1, 4), (2, 3), (3, 3)]
    assert await placement.rebalance() == 0
    await members.remove_broker(3)
    await placement.rebalance()
    assert await shares(connection) == [(1, 5), (2, 5)]


async def test_rebalancing_leaves_stores_alone(
    connection: Connection, members: ClusterMembers, placement: Placement
) -> None:
    """A partition in a broker's own store stays with that broker and does not count; a partition of the
    common store may be served by that broker."""
    await members.enter(HOST, 1000, 41, ("broker",), 2)
    topic_id = await topic(connection, 4)
    await connection.execute("select nuncius.publish('news', 'x', partition => 1)")
    await connection.execute("select nuncius.publish('news', 'x', partition => 2)")
    assert (await placement.route(topic_id)).stores == (1, 1, 2, 2)
    await members.enter(HOST, 1100, 42, ("broker",))
    assert await placement.rebalance() == 1
    route = await placement.route(topic_id)
    assert (sorted(map(str, route.brokers[:2])), route.brokers[2:]) == (["1", "2"], (1, 1))
    assert route.stores == (1, 1, 2, 2)


async def test_rebalancing_with_nobody(
    members: ClusterMembers, placement: Placement, connection: Connection
) -> None:
    """Without a healthy broker everything stays as it is."""
    await members.enter(HOST, 1000, 41, ("broker",))
    await placement.route(await topic(connection, 2))
    await members.remove_broker(1)
    assert await placement.rebalance() == 0
    assert await shares(connection) == [(1, 2)]


async def test_rebalancing_by_itself(dsn: str, connection: Connection) -> None:
    """Some time after a broker came, partitions are spread anew, once."""
    async with node(dsn, "broker", port=1000, rebalance_after=0.2) as first:
        await first.participant.placement.route(await topic(connection, 4))
        async with node(dsn, "broker", port=1100, rebalance_after=0):

            async def is_even() -> bool:
                return await shares(connection) == [(1, 2), (2, 2)]

            await until(is_even)
