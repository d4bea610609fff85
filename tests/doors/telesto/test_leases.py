"""Leases over the native protocol: what a connection has in hand is its own, and goes back when it ends."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from broker.acknowledging import QUICK, gate, held, lease_one, node, until_held
from broker.inside import put, queue, until_waiting_for
from native_peer import NativePeer, connections, open_door, open_peer
from nuncius.broker import Broker
from nuncius.broker.errors import StoreUnavailable
from nuncius.broker.limits import Limits
from nuncius.broker.model import Letter
from nuncius.node.shared_port import TelestoDoor
from nuncius.store.driver import Connection
from nuncius.wire import packets
from nuncius.wire.packets import ErrorCode
from racing import until

Connecting = Callable[..., Awaitable[NativePeer]]


@pytest.fixture
def limits() -> Limits:
    """Failed messages are tried again soon."""
    return QUICK


@pytest.fixture
async def door(broker: Broker) -> AsyncIterator[tuple[TelestoDoor, int]]:
    async with open_door(broker) as opened:
        yield opened


@pytest.fixture
async def connect(door: tuple[TelestoDoor, int]) -> AsyncIterator[Connecting]:
    """Opens welcomed connections; all are closed afterwards."""
    made: list[NativePeer] = []

    async def another(client: str = "") -> NativePeer:
        made.append(await open_peer(door[1]))
        await made[-1].hello(client)
        return made[-1]

    yield another
    for each in made:
        await each.close()


@pytest.fixture
async def peer(connect: Connecting) -> NativePeer:
    return await connect()


async def lease(peer: NativePeer, limit: int = 1, wait_ms: int = 0) -> list[packets.LeasedMessage]:
    answer = await peer.ask(packets.Lease, "jobs", limit, wait_ms)
    assert isinstance(answer, packets.Leased), answer
    return answer.messages


async def is_done(peer: NativePeer, kind: type[packets.Packet], *fields: object) -> bool:
    return isinstance(await peer.ask(kind, *fields), packets.Done)


async def test_two_connections(connect: Connecting, broker: Broker) -> None:
    """Two consumers never hold the same message, and neither can settle what the other has."""
    jobs = await queue(broker)
    await put(broker, jobs, *(b"%d" % n for n in range(20)))
    ann, bob = await connect(), await connect()
    mine, theirs = await lease(ann, 10), await lease(bob, 10)
    assert {one.message.body for one in mine + theirs} == {b"%d" % n for n in range(20)}
    answer = await ann.ask(packets.Settle, [mine[0].lease, theirs[0].lease])
    assert answer.code == ErrorCode.NOT_HELD
    assert f"does not hold lease {theirs[0].lease}" in answer.text
    assert (await ann.ask(packets.Release, [theirs[0].lease])).code == ErrorCode.NOT_HELD
    assert await is_done(ann, packets.Settle, [one.lease for one in mine])  # nothing had changed
    assert await is_done(bob, packets.Settle, [one.lease for one in theirs])
    answer = await bob.ask(packets.Settle, [theirs[0].lease])
    assert answer.code == ErrorCode.NOT_HELD


async def test_withdraw(peer: NativePeer, broker: Broker) -> None:
    """A Lease that waits is withdrawn like a Take: answered with nothing, and nothing is taken for it."""
    jobs = await queue(broker)
    peer.send(packets.Lease(50, "jobs", 1, 60_000))
    await until_waiting_for(broker, jobs)
    peer.send(packets.Lease(50, "jobs"), packets.Withdraw(51, 50))
    assert "already" in await peer.refused(ErrorCode.INVALID)
    assert await peer.expect(packets.Leased) == packets.Leased(50, [])
    broker.queues.names.forget_all()
    again = packets.Lease(52, "jobs", 1, 60_000)  # withdrawn before its queue is found
    peer.send(again, packets.Withdraw(53, 52), again, packets.Withdraw(54, 52), packets.Lease(55, "jobs"))
    for number in (52, 52, 55):
        assert await peer.expect(packets.Leased) == packets.Leased(number, [])
    await put(broker, jobs, b"x")
    (one,) = await broker.queues.take(jobs)
    assert one.body == b"x"


async def test_addressed_messages(connect: Connecting, broker: Broker) -> None:
    """A client gets what is for anybody and what is for itself."""
    jobs = await queue(broker)
    ann, bob = await connect("ann"), await connect("bob")
    number = (await broker.clients.find("bob")).client_id
    await put(broker, jobs, Letter(b"for bob", receiver=number))
    assert await lease(ann) == []
    (one,) = await lease(bob)
    assert one.message.body == b"for bob"


async def test_wrong_requests(peer: NativePeer, broker: Broker) -> None:
    """They are refused, each in its way, and the connection goes on."""
    await queue(broker)
    for packet, code in (
        (packets.Lease(50, "nothing"), ErrorCode.NOT_FOUND),
        (packets.Lease(51, "a\0b"), ErrorCode.INVALID),
        (packets.Lease(52, "jobs", 0), ErrorCode.INVALID),
        (packets.Lease(53, "jobs", -1), ErrorCode.INVALID),
        (packets.Lease(54, "jobs", 2**64 - 1), ErrorCode.INVALID),
        (packets.Settle(55, []), ErrorCode.INVALID),
        (packets.Release(56, []), ErrorCode.INVALID),
        (packets.Settle(57, [-1, 0, 2**64 - 1]), ErrorCode.NOT_HELD),
        (packets.Release(58, [2**63], "no"), ErrorCode.NOT_HELD),
    ):
        peer.send(packet)
        error = await peer.expect(packets.Error)
        assert (error.request, error.code) == (packet.request, code), error
    assert await lease(peer, wait_ms=-1) == []


async def test_so_many_in_hand(dsn: str) -> None:
    """A connection has at most so many messages in hand, those it has asked for included."""
    async with node(dsn, Limits(max_batch=5)) as broker, open_door(broker) as (_, port):
        jobs = await queue(broker)
        await put(broker, jobs, b"a", b"b", b"c")
        peer = await open_peer(port)
        await peer.hello()
        mine = await lease(peer, 3)
        assert (await peer.ask(packets.Lease, "jobs", 3)).code == ErrorCode.INVALID
        peer.send(packets.Lease(50, "jobs", 2, 60_000))
        await until_waiting_for(broker, jobs)
        assert "at most 5 in hand; 5 are" in (await peer.ask(packets.Lease, "jobs", 1)).text
        peer.send(packets.Withdraw(51, 50))
        assert (await peer.expect(packets.Leased)).messages == []
        assert (await peer.ask(packets.Lease, "nothing", 2)).code == ErrorCode.NOT_FOUND
        assert await lease(peer, 2) == []
        assert await is_done(peer, packets.Settle, [one.lease for one in mine])
        assert await lease(peer, 5) == []
        await peer.close()


async def test_a_store_that_is_away(
    peer: NativePeer, broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be settled is still in hand, and may be settled later."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x")
    (one,) = await lease(peer)
    with monkeypatch.context() as patched:
        patched.setattr(
            broker.leases, "settle_soon", lambda ids, done, caller: done(StoreUnavailable("away"))
        )
        assert (await peer.ask(packets.Settle, [one.lease])).code == ErrorCode.UNAVAILABLE
    assert await is_done(peer, packets.Settle, [one.lease])
    assert await held(connection) == []


async def test_lost_while_it_settles(
    connect: Connecting, broker: Broker, connection: Connection, door: tuple[TelestoDoor, int]
) -> None:
    """A Settle that was under way when the connection ended still counts."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x")
    opened = gate(broker.leases._settling)  # noqa: SLF001
    ann = await connect()
    (one,) = await lease(ann)
    ann.send(packets.Settle(50, [one.lease]))
    await until_held(connection, 0)
    await ann.close()
    await until(lambda: connections(door[0]) == 0)
    opened.set()
    await until(lambda: broker.pressure.level == 0)
    assert await broker.failures() == []


async def test_shutting_down(broker: Broker, connection: Connection) -> None:
    """A node that shuts down sends waiting consumers away, and what is in hand goes back."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x")
    async with open_door(broker) as (door, port):
        peer = await open_peer(port)
        await peer.hello()
        await lease(peer)
        peer.send(packets.Lease(50, "jobs", 1, 60_000))
        await until_waiting_for(broker, jobs)
        await door.close()
        await peer.refused(ErrorCode.CLOSING)
        assert await peer.closed()
        await peer.close()
    assert (await lease_one(broker, jobs)).attempts == 1
    assert len(await held(connection)) == 1


async def test_machines_that_vanish(peer: NativePeer, door: tuple[TelestoDoor, int]) -> None:
    """A silent connection is asked for a sign of life, so that one whose other end is gone ends, too."""
    assert isinstance(await peer.ask(packets.Ping), packets.Pong)
    (wire,) = door[0].wires
    connected = wire._transport.get_extra_info("socket")  # noqa: SLF001
    assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
