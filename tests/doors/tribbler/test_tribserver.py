"""The Tribbler service as clients see it: Go RPC and JSON-RPC, through any node of a ring."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from cluster.tribbler_ring import Ring, running_ring
from nuncius.broker import Broker
from nuncius.client.errors import CannotConnect, NunciusError
from nuncius.client.tribbler import TribblerClient
from nuncius.doors.tribbler import storage_service, tribserver_peers
from nuncius.doors.tribbler.rpc_client import RpcClient, RpcClients, RpcError
from nuncius.doors.tribbler.storage_messages import GetArgs, GetListReply, GetReply
from nuncius.doors.tribbler.tribserver_messages import (
    CreateUserArgs,
    GetSubscriptionsArgs,
    GetSubscriptionsReply,
    GetTribblesArgs,
    GetTribblesReply,
    PostManyArgs,
    PostManyReply,
    PostTribbleArgs,
    PutManyArgs,
    RecentArgs,
    RecentReply,
    StatusReply,
    SubscriptionArgs,
)
from nuncius.doors.tribbler.tribserver_peers import RingPeers
from nuncius.ring import leases
from nuncius.ring.peers import Unreached
from nuncius.ring.ring import NodePlace
from nuncius.ring.ring import Ring as Places
from nuncius.ring.tribbler.model import posts_key
from nuncius.store.driver import Connection
from nuncius.testing import free_port
from racing import until

OK, NO_USER, NO_TARGET, EXISTS = range(4)


@pytest.fixture
async def ring(dsn: str, away: str) -> AsyncIterator[Ring]:
    """Two nodes with ports and stores of their own."""
    async with running_ring([dsn, away], timelines_from=3) as made:
        yield made


@pytest.fixture
async def callers(ring: Ring) -> AsyncIterator[list[RpcClient]]:
    made = [RpcClient(node) for node in ring.nodes]
    yield made
    for caller in made:
        caller.close()


async def status(
    caller: RpcClient, method: str, args: CreateUserArgs | SubscriptionArgs | PostTribbleArgs
) -> int:
    return (await caller.call(f"Tribserver.{method}", args, StatusReply)).status


async def contents(caller: RpcClient, method: str, user: str) -> tuple[int, list[str]]:
    reply = await caller.call(f"Tribserver.{method}", GetTribblesArgs(user), GetTribblesReply)
    return reply.status, [each.contents for each in reply.tribbles]


async def test_every_status(callers: list[RpcClient]) -> None:
    """All seven methods answer with the statuses that the course defines, whichever node is asked."""
    one, other = callers
    assert await status(one, "CreateUser", CreateUserArgs("dga")) == OK
    assert await status(other, "CreateUser", CreateUserArgs("dga")) == EXISTS
    assert await status(other, "CreateUser", CreateUserArgs("bryant")) == OK
    for method in ("AddSubscription", "RemoveSubscription"):
        assert await status(one, method, SubscriptionArgs("nobody", "dga")) == NO_USER
        assert await status(one, method, SubscriptionArgs("dga", "nobody")) == NO_TARGET
    assert await status(other, "RemoveSubscription", SubscriptionArgs("dga", "bryant")) == NO_TARGET
    assert await status(one, "AddSubscription", SubscriptionArgs("dga", "bryant")) == OK
    assert await status(other, "AddSubscription", SubscriptionArgs("dga", "bryant")) == EXISTS
    assert await status(one, "PostTribble", PostTribbleArgs("nobody", "x")) == NO_USER
    for caller in callers:
        reply = await caller.call(
            "Tribserver.GetSubscriptions", GetSubscriptionsArgs("dga"), GetSubscriptionsReply
        )
        assert (reply.status, reply.userids) == (OK, ["bryant"])
        missing = await caller.call(
            "Tribserver.GetSubscriptions", GetSubscriptionsArgs("nobody"), GetSubscriptionsReply
        )
        assert (missing.status, missing.userids) == (NO_USER, [])
        assert await contents(caller, "GetTribbles", "nobody") == (NO_USER, [])
        assert await contents(caller, "GetTribblesBySubscription", "nobody") == (NO_USER, [])
        assert await status(caller, "PostTribble", PostTribbleArgs("bryant", f"by {caller.address}")) == OK
    said = [f"by {caller.address}" for caller in reversed(callers)]
    for caller in callers:
        assert await contents(caller, "GetTribbles", "bryant") == (OK, said)
        assert await contents(caller, "GetTribblesBySubscription", "dga") == (OK, said)
        assert await contents(caller, "GetTribbles", "dga") == (OK, [])
    assert await status(one, "RemoveSubscription", SubscriptionArgs("dga", "bryant")) == OK
    assert await contents(other, "GetTribblesBySubscription", "dga") == (OK, [])


async def test_all_nodes_at_once(callers: list[RpcClient]) -> None:
    """Posts and follows from all nodes at the same time are all there."""
    users = [f"user-{n}" for n in range(10)]
    await asyncio.gather(
        *(status(callers[n % 2], "CreateUser", CreateUserArgs(u)) for n, u in enumerate(users))
    )
    posts = [(n, user) for n in range(9) for user in users]
    done = await asyncio.gather(
        *(status(callers[n % 2], "PostTribble", PostTribbleArgs(user, f"{user} {n}")) for n, user in posts),
        *(
            status(callers[n % 2], "AddSubscription", SubscriptionArgs(users[0], u))
            for n, u in enumerate(users)
        ),
    )
    assert set(done) == {OK}
    for caller in callers:
        _, feed = await contents(caller, "GetTribblesBySubscription", users[0])
        assert sorted(feed) == sorted(f"{user} {n}" for n, user in posts)


async def test_what_nodes_ask_each_other(callers: list[RpcClient]) -> None:
    """Posts of lately, and many values at once, wherever they belong."""
    one, other = callers
    name = await one.call("Tribserver.Recent", RecentArgs(True), RecentReply)
    assert name.topic
    assert name.topic != (await other.call("Tribserver.Recent", RecentArgs(True), RecentReply)).topic
    keys = [f"key-{n}:x" for n in range(50)]
    assert (await one.call("Tribserver.PutMany", PutManyArgs(keys, keys), StatusReply)).status == OK
    for key in keys:
        assert (await other.call("StorageRPC.Get", GetArgs(key), GetReply)).value == key
    with pytest.raises(RpcError, match="as many values as keys"):
        await one.call("Tribserver.PutMany", PutManyArgs(keys, []), StatusReply)
    too_long = "x" * 2000
    for caller in callers:
        with pytest.raises(RpcError, match="1024 bytes"):
            await caller.call("Tribserver.PutMany", PutManyArgs([too_long], ["x"]), StatusReply)
    with pytest.raises(RpcError, match="1000 bytes"):
        await one.call("Tribserver.CreateUser", CreateUserArgs(too_long), StatusReply)


async def test_large_tribbles(callers: list[RpcClient], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tribbles that are too large for one answer between nodes come with several, whichever node is asked."""
    monkeypatch.setattr(storage_service, "MAX_ANSWER", 1000)
    said = [str(n) * size for n, size in enumerate((300, 600, 2000, 10, 800, 2000, 5))]
    for user in ("dga", "bryant", "gaga"):
        assert await status(callers[0], "CreateUser", CreateUserArgs(user)) == OK
        for text in said:
            assert await status(callers[1], "PostTribble", PostTribbleArgs(user, text)) == OK
        for caller in callers:
            assert await contents(caller, "GetTribbles", user) == (OK, said[::-1])


async def test_posts_that_cannot_be(callers: list[RpcClient]) -> None:
    """A tribble that is too large is refused with the same words, whichever node is asked."""
    assert await status(callers[0], "CreateUser", CreateUserArgs("dga")) == OK
    for caller in callers:
        with pytest.raises(RpcError, match="at most 8388608 bytes"):
            await status(caller, "PostTribble", PostTribbleArgs("dga", "x" * (9 << 20)))


async def test_an_owner_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A post waits a while for its user's node, and then says that it cannot be reached."""
    monkeypatch.setattr(tribserver_peers, "PATIENCE", 0.05)
    monkeypatch.setattr(tribserver_peers, "PAUSE", 0.01)
    callers = RpcClients()
    storage = SimpleNamespace(me="localhost:2", ring=Places([NodePlace(1, "localhost:1")]))
    peers = RingPeers(cast("Any", storage), callers, cast("Any", None), cast("Any", None))
    with pytest.raises(Unreached, match="cannot be reached"):
        await peers.post("dga", "hello")
    callers.close()


async def test_posts_between_nodes_go_together(callers: list[RpcClient]) -> None:
    """Posts for users of another node are each stored once, or refused, however they are sent together."""
    users = [f"user-{n}" for n in range(20)]
    for user in users:
        assert await status(callers[0], "CreateUser", CreateUserArgs(user)) == OK
    sizes = [10] * len(users)
    sizes[7], sizes[9] = 2 << 20, 9 << 20
    for n in range(3):  # the first posts of a user wait for its list, the others do not
        done = await asyncio.gather(
            *(
                status(callers[0], "PostTribble", PostTribbleArgs(user, str(n) * size))
                for user, size in zip(users, sizes, strict=True)
            ),
            return_exceptions=True,
        )
        assert [each == OK for each in done] == [size < 9 << 20 for size in sizes]
        assert "at most 8388608 bytes" in str(done[9])
    for user, size in zip(users, sizes, strict=True):
        expected = [str(n) * size for n in (2, 1, 0) if size < 9 << 20]
        assert await contents(callers[1], "GetTribbles", user) == (OK, expected)


async def test_a_post_that_waits_holds_up_no_other(
    callers: list[RpcClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a post waits for a lease of its user's list, posts of other users at the same node are stored."""
    monkeypatch.setattr(leases, "OUTSTANDING", 1.0)
    silent = await asyncio.get_running_loop().create_server(Silent, "localhost", 0)
    holder = f"localhost:{silent.sockets[0].getsockname()[1]}"
    ring = Places([NodePlace(2**31 - 1, "first"), NodePlace(2**32 - 1, "second")])
    users = [user for n in range(100) if ring.owner(user := f"user-{n}") == "first"][:2]
    for user in users:
        assert await status(callers[1], "CreateUser", CreateUserArgs(user)) == OK
        assert await status(callers[1], "PostTribble", PostTribbleArgs(user, "first")) == OK
    granted = await callers[0].call(
        "StorageRPC.GetList", GetArgs(posts_key(users[0], 0), True, holder), GetListReply
    )
    assert granted.lease.granted
    waiting = asyncio.ensure_future(status(callers[1], "PostTribble", PostTribbleArgs(users[0], "late")))
    for n in range(5):
        assert await status(callers[1], "PostTribble", PostTribbleArgs(users[1], str(n))) == OK
    assert not waiting.done()
    assert await waiting == OK
    assert await contents(callers[0], "GetTribbles", users[0]) == (OK, ["late", "first"])
    silent.close()
    for transport in Silent.transports:
        transport.abort()


class Silent(asyncio.Protocol):
    """A holder of leases that never answers."""

    transports: ClassVar[list[asyncio.Transport]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transports.append(cast("asyncio.Transport", transport))


async def test_tribbles_that_do_not_go_together(callers: list[RpcClient]) -> None:
    """A call with more users than tribbles is refused."""
    with pytest.raises(RpcError, match="as many tribbles as users"):
        await callers[0].call("Tribserver.PostMany", PostManyArgs(["a", "b"], ["x"]), PostManyReply)


async def test_json(ring: Ring) -> None:
    """The same over Go's JSON-RPC, with the client of this package."""

    def talk() -> None:
        with TribblerClient(ring.nodes[0]) as client:
            assert client.call("Tribserver.CreateUser", {"Userid": "dga"}) == {"Status": OK}
            assert client.call("Tribserver.PostTribble", {"Userid": "dga", "Contents": "hi"}) == {
                "Status": OK
            }
            (tribble,) = client.call("Tribserver.GetTribbles", {"Userid": "dga"})["Tribbles"]
            assert (tribble["Userid"], tribble["Contents"]) == ("dga", "hi")

    await asyncio.to_thread(talk)


async def test_a_node_that_is_not_there() -> None:
    """The client says that nobody is there, and that a connection ended."""
    port = free_port()
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)

    def talk() -> None:
        with (
            TribblerClient(f"127.0.0.1:{port}") as client,
            pytest.raises(NunciusError, match=r"closed|broke|no answer"),
        ):
            client.call("Tribserver.CreateUser", {"Userid": "dga"})

    await asyncio.to_thread(talk)
    server.close()
    await server.wait_closed()
    with pytest.raises(CannotConnect, match="cannot connect"):
        await asyncio.to_thread(TribblerClient, f"127.0.0.1:{port}")


async def test_a_tribble_counts_as_published(port: int, broker: Broker) -> None:
    """It is an entry of the topic tribbles; users and whom they follow are none."""
    caller = RpcClient(f"localhost:{port}")
    assert await status(caller, "CreateUser", CreateUserArgs("galileo")) == OK
    assert await status(caller, "PostTribble", PostTribbleArgs("galileo", "moons")) == OK
    caller.close()
    assert broker.counters.totals["tribbler", "published"] == 1


async def test_a_tribble_wakes_readers_without_a_notification(
    port: int, broker: Broker, connection: Connection
) -> None:
    """Readers of the topic tribbles at the same node are woken, without a notification of other nodes."""
    caller = RpcClient(f"localhost:{port}")
    assert await status(caller, "CreateUser", CreateUserArgs("galileo")) == OK
    assert await status(caller, "PostTribble", PostTribbleArgs("galileo", "moons")) == OK
    topic = await broker.topics.existing("tribbles")
    heard: list[object] = []
    await connection.add_listener("nuncius", lambda *news: heard.append(news[3]))
    woken = asyncio.Event()
    broker.signals.watch(topic.topic_id, woken.set)
    assert await status(caller, "PostTribble", PostTribbleArgs("galileo", "rings")) == OK
    await woken.wait()
    await broker.store.query("select pg_notify('nuncius', 'n')")  # later than any notification of the tribble
    await until(lambda: _has_heard(heard))
    assert heard == ["n"]
    caller.close()


async def _has_heard(heard: list[object]) -> bool:
    return bool(heard)
