"""Nodes that call each other over real connections; some of them know only what Go programs know."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from nuncius.broker import Broker
from nuncius.doors.tcp import TcpDoor
from nuncius.doors.tribbler import rpc_client as caller_module
from nuncius.doors.tribbler.door import NotInRing, TribblerDoor
from nuncius.doors.tribbler.rpc_client import RpcClient, RpcClients, RpcError
from nuncius.doors.tribbler.rpc_codec import CONNECTED
from nuncius.doors.tribbler.services import Method, Service, Services
from nuncius.doors.tribbler.session import RpcSession
from nuncius.doors.tribbler.storage_messages import (
    Client,
    ClientGetArgs,
    GetArgs,
    GetListReply,
    GetReply,
    Nothing,
    PutArgs,
    PutReply,
    RevokeLeaseArgs,
    RevokeLeaseReply,
    RpcStruct,
)
from nuncius.doors.tribbler.storage_peer import RpcPeer
from nuncius.doors.wire import Session, Wire
from nuncius.ring import handover as ring_handover
from nuncius.ring import members as ring_members
from nuncius.ring.handover import CannotJoin
from nuncius.ring.members import CannotRegister
from nuncius.ring.peers import FoundKey, Mention, Unreached
from nuncius.ring.ring import NodePlace, Ring
from nuncius.ring.settings import RingSettings
from nuncius.ring.storage import KeyRefused, OwnerSilent, StorageError
from nuncius.store.calls.keys import POST, PUT, RAISE, REMOVE
from racing import until


class GoNode(TcpDoor):
    name = "tribbler"

    """A node as somebody's Go program would have it: the plain methods only, on a dictionary."""

    def __init__(
        self,
        broker: Broker,
        name: str = "StorageRPC",
        form: type[GetArgs | ClientGetArgs] = GetArgs,
    ) -> None:
        super().__init__(broker)
        self.values: dict[str, str] = {}
        self.lists: dict[str, list[str]] = {}
        self.calls: list[str] = []
        self.wishes: list[RpcStruct] = []
        self.over = asyncio.Event()
        methods = {
            "Get": Method(form, self.get),
            "GetList": Method(form, self.get_list),
            "Put": Method(PutArgs, self.put),
            "AppendToList": Method(PutArgs, self.append),
            "RevokeLease": Method(RevokeLeaseArgs, self.revoke),
        }
        self._services = Services([Service(name, methods)])

    def greet(self, wire: Wire) -> Session:
        return RpcSession(self._services, wire)

    async def get(self, asked: GetArgs | ClientGetArgs) -> GetReply:
        self.calls.append("Get")
        self.wishes += [asked] if asked.want_lease else []
        if asked.key == "error":
            raise StorageError("a Go error")
        if asked.key == "hang":
            await self.over.wait()
        found = self.values.get(asked.key)
        return GetReply(1) if found is None else GetReply(0, found)

    async def get_list(self, asked: GetArgs | ClientGetArgs) -> GetListReply:
        found = self.lists.get(asked.key)
        return GetListReply(1) if found is None else GetListReply(0, found)

    async def put(self, asked: PutArgs) -> PutReply:
        if asked.key == "full":
            return PutReply(3)
        self.values[asked.key] = asked.value
        return PutReply()

    async def append(self, asked: PutArgs) -> PutReply:
        self.lists.setdefault(asked.key, []).append(asked.value)
        return PutReply()

    async def revoke(self, asked: RevokeLeaseArgs) -> RevokeLeaseReply:
        return RevokeLeaseReply(0 if asked.key in self.values else 1)


@pytest.fixture
async def go_node(broker: Broker) -> AsyncIterator[GoNode]:
    door = GoNode(broker)
    yield door
    door.over.set()
    await door.close()


@pytest.fixture
async def peer(go_node: GoNode) -> AsyncIterator[RpcPeer]:
    caller = RpcClient(f"localhost:{await go_node.open('localhost', 0)}")
    yield RpcPeer(caller)
    caller.close()


@pytest.mark.parametrize(
    ("form", "understood"),
    [
        (ClientGetArgs, ClientGetArgs("k", True, Client("localhost:1", 5))),
        (GetArgs, GetArgs("k", True, "localhost:1")),
    ],
    ids=["fall 2011", "later"],
)
async def test_editions(broker: Broker, form: type[GetArgs | ClientGetArgs], understood: RpcStruct) -> None:
    """A wish for a lease reaches a node of either edition, also when many are sent before one is answered."""
    door = GoNode(broker, form=form)
    caller = RpcClient(f"localhost:{await door.open('localhost', 0)}")
    try:
        peer = RpcPeer(caller, {"localhost:1": 5}.__getitem__)
        await peer.write(PUT, "k", "v", None)
        for _ in range(2):
            reads = [peer.read(False, ["k"], [True], "localhost:1") for _ in range(10)]
            assert await asyncio.gather(*reads) == 10 * [[FoundKey("v")]]
        assert door.wishes == 20 * [understood]
        with pytest.raises(StorageError, match="a Go error"):
            await peer.read(False, ["error"], [True], "localhost:1")
    finally:
        caller.close()
        await door.close()


async def test_a_node_that_knows_only_the_plain_methods(peer: RpcPeer, go_node: GoNode) -> None:
    """Many keys are asked for one by one; a post is a put and an append, and a number is put as it comes."""
    assert await peer.write(PUT, "k", "v", None) == 0
    assert await peer.read(False, ["k", "none"], [False, False], "") == [FoundKey("v"), FoundKey(None)]
    assert await peer.read(True, ["k", "none"], [False, False], "") == [FoundKey(None), FoundKey(None)]
    assert await peer.write(POST, "u:1", "v", Mention("u:l", "1", "u", b"")) == 1
    assert await peer.write(RAISE, "u:n", "7", None) == 0
    assert (go_node.values, go_node.lists) == ({"k": "v", "u:1": "v", "u:n": "7"}, {"u:l": ["1"]})
    assert await peer.revoke("k") is True
    assert await peer.revoke("other") is False


async def test_a_holder_that_is_only_a_cache(broker: Broker) -> None:
    """A client of the course's later years serves CacheRPC instead, and gives its lease back there."""
    door = GoNode(broker, "CacheRPC")
    caller = RpcClient(f"localhost:{await door.open('localhost', 0)}")
    door.values["k"] = "v"
    assert await RpcPeer(caller).revoke("k") is True
    caller.close()
    await door.close()


async def test_what_the_other_side_refuses(peer: RpcPeer) -> None:
    """Its errors arrive as ours, with its address."""
    with pytest.raises(KeyRefused):
        await peer.write(PUT, "full", "v", None)
    for call in (
        peer.read(False, ["error"], [False], ""),
        peer.write(REMOVE, "k", "v", None),
        peer.hand_over(Ring([NodePlace(1, "x")])),
        peer.take([], []),
    ):
        with pytest.raises(StorageError, match="localhost:"):
            await call
    with pytest.raises(CannotRegister, match="can't find method"):
        await peer.register([NodePlace(1, "x")])
    with pytest.raises(StorageError):
        await peer.join([NodePlace(1, "x")])


async def test_a_node_that_goes_away(peer: RpcPeer, go_node: GoNode) -> None:
    """A call that was sent ends without an answer; the next one finds nobody."""
    hanging = asyncio.ensure_future(peer.read(False, ["hang"], [False], ""))
    await until(lambda: go_node.calls)
    for wire in list(go_node.wires):
        wire.close()
    with pytest.raises(OwnerSilent, match="lost before the answer"):
        await hanging
    assert await peer.write(PUT, "k", "v", None) == 0
    await go_node.close()
    await until(lambda: not go_node.wires)
    with pytest.raises(Unreached, match="cannot be reached"):
        await peer.write(PUT, "k", "v", None)


async def test_silence(go_node: GoNode) -> None:
    """A call may be given a time."""
    caller = RpcClient(f"localhost:{await go_node.open('localhost', 0)}")
    with pytest.raises(OwnerSilent, match=r"not answered for 0.01 seconds"):
        await caller.call("StorageRPC.Get", GetArgs("hang"), GetReply, seconds=0.01)
    with pytest.raises(RpcError, match="gob"):
        await caller.call("StorageRPC.Put", PutArgs("full", "v"), Odd)
    caller.close()


class Odd(Nothing, frozen=True):
    status: str = ""


@pytest.mark.parametrize("address", ["nowhere", "localhost:x", "localhost:99999", "", "localhost:0"])
async def test_addresses_that_are_none(address: str) -> None:
    """A lease holder may give any address; what is none cannot be reached."""
    with pytest.raises(Unreached):
        await RpcPeer(RpcClient(address)).revoke("k")


async def test_a_port_that_is_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else answers there, or does not answer, is no node."""
    monkeypatch.setattr(caller_module, "CONNECT_SECONDS", 0.2)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(replies.pop())
        await writer.drain()
        opened.append(writer)

    opened: list[asyncio.StreamWriter] = []
    replies = [b"", b"SSH-2.0\n\n", b"HTTP/1.1 200 OK\r\n\r\n"]
    server = await asyncio.start_server(answer, "localhost", 0)
    port = server.sockets[0].getsockname()[1]
    while replies:
        with pytest.raises(Unreached):
            await RpcPeer(RpcClient(f"localhost:{port}")).revoke("k")
    for writer in opened:
        writer.close()
    server.close()


async def test_an_answer_that_makes_no_sense() -> None:
    """A stream that breaks ends the connection, and the calls on it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\n\n")
        writer.write(b"HTTP/1.0 200 Connected to Go RPC\n\n")
        await reader.read(10)
        writer.write(b"\xf0\xf0")
        await reader.read()
        writer.close()
        over.set()

    over = asyncio.Event()
    server = await asyncio.start_server(answer, "localhost", 0)
    peer = RpcPeer(RpcClient(f"localhost:{server.sockets[0].getsockname()[1]}"))
    with pytest.raises(OwnerSilent, match="bad length"):
        await peer.revoke("k")
    await over.wait()
    server.close()


async def test_few_connections() -> None:
    """A caller is kept for each address, and the one not used for longest is let go."""
    callers = RpcClients(most=2)
    first, second = callers.at("a:1"), callers.at("b:1")
    assert callers.at("a:1") is first
    callers.at("c:1")
    assert callers.at("a:1") is first
    assert callers.at("b:1") is not second
    callers.close()


async def test_a_node_that_ends_before_its_ring_is_complete(broker: Broker) -> None:
    """Calls wait for the other nodes; when the node is stopped they hear so, and it ends at once."""
    door = TribblerDoor(broker, RingSettings(7, 2))
    caller = RpcClient(f"localhost:{await door.open('localhost', 0)}")
    calling = asyncio.ensure_future(caller.call("StorageRPC.Get", GetArgs("k"), GetReply))
    await until(lambda: broker.pressure.level > 0)
    async with asyncio.timeout(40):
        await door.close()
    with pytest.raises(RpcError, match="before its ring is complete"):
        await calling
    caller.close()


async def test_a_ring_over_real_connections(dsns: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes come together, a third joins them while they are in use, a fourth is not let in."""
    monkeypatch.setattr(ring_members, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(ring_handover, "RETRY_SECONDS", 0.01)
    async with AsyncExitStack() as stack:
        brokers = [await stack.enter_async_context(Broker(dsn, patience=20)) for dsn in dsns]
        failed = asyncio.Event()

        async def start(n: int, settings: RingSettings) -> tuple[TribblerDoor, str]:
            door = TribblerDoor(brokers[n], settings, give_up=failed.set)
            address = f"localhost:{await door.open('localhost', 0)}"
            return door, address

        first, master = await start(0, RingSettings(2**31, 2))
        stack.push_async_callback(first.close)
        second, _ = await start(1, RingSettings(2**32 - 1, 1, master))
        stack.push_async_callback(second.close)
        peer = RpcPeer(RpcClient(master))
        keys = [f"{n}user{n}:x" for n in range(60)]
        await asyncio.gather(*(peer.write(PUT, key, key, None) for key in keys))
        unwelcome, _ = await start(2, RingSettings(2**31, 1, master, join=True))
        async with asyncio.timeout(60):
            await failed.wait()
        with pytest.raises(NotInRing, match="is taken"):
            await unwelcome.close()
        third, address = await start(2, RingSettings(5, 1, master, 8, join=True))
        stack.push_async_callback(third.close)
        there = RpcPeer(RpcClient(address))
        found = await there.read(False, keys, [False] * 60, "")
        assert [each.value for each in found] == keys
        ring = await there.ring()
        assert ring is not None
        assert ring.version == 2
        assert len(ring.nodes) == 3
        with pytest.raises(CannotJoin):
            await peer.join([NodePlace(2**31, "x:1")])
        answer = await peer.register([NodePlace(1, "somebody:1")])
        assert answer.ready
        assert list(answer.places) == list(ring.places)


async def test_a_node_that_goes_when_it_is_reached() -> None:
    """A call on a connection that was lost before it began fails at once, as one that never was sent."""

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\n\n")
        writer.write(CONNECTED)
        writer.close()

    async with await asyncio.start_server(attend, "127.0.0.1", 0) as server:
        caller = RpcClient(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with asyncio.timeout(20):
            with pytest.raises(Unreached):
                await caller.call("StorageRPC.Take", Nothing(), Nothing, seconds=None)
        caller.close()
