"""Bad input over real sockets: the node answers clearly or closes that connection, and serves all others."""

import asyncio
import contextlib
import os
import random
import resource
import socket
import struct
from collections.abc import AsyncIterator, Iterator

import psutil
import pytest

import nuncius.testing
from native_peer import NativePeer, connections, open_door, open_peer
from nuncius.broker import Broker
from nuncius.node.shared_port import TelestoDoor
from nuncius.wire import codec as native
from nuncius.wire import packets
from nuncius.wire.packets import ErrorCode
from racing import until

MEGABYTE = 1 << 20


@pytest.fixture
async def door(broker: Broker) -> AsyncIterator[tuple[TelestoDoor, int]]:
    async with open_door(broker) as opened:
        yield opened


@pytest.fixture(scope="module")
def node() -> Iterator["nuncius.testing.Broker"]:
    """A node in a process of its own, whose memory can be measured."""
    with nuncius.testing.broker() as running:
        yield running


async def alive(port: int) -> None:
    """The node serves somebody who behaves."""
    peer = await open_peer(port)
    await peer.hello()
    assert isinstance(await peer.ask(packets.Ping), packets.Pong)
    await peer.close()


async def raw(port: int, data: bytes) -> bytes:
    """Sends bytes, says no more, and reads what comes until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with contextlib.suppress(OSError):
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(60):
            while chunk := await reader.read(1 << 16):
                answer += chunk
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return answer


HELLO = native.MAGIC + native.encode(packets.Hello(1))


async def test_other_protocols(door: tuple[TelestoDoor, int]) -> None:
    """Who speaks something else is not answered in a language it does not know, but closed."""
    for data in (b"\xf5NU\x02", b"\xf5", b"\xf5NO", b"\xff" * 100, b"\x80\x00\x00\x00"):
        assert await raw(door[1], data) == b""
    await alive(door[1])
    await until(lambda: connections(door[0]) == 0)


async def test_truncated(door: tuple[TelestoDoor, int], broker: Broker) -> None:
    """A connection that ends in the middle of a packet does no harm, wherever it ends."""
    data = HELLO + native.encode(packets.Publish(2, "t", [b"x" * 50], None, None, 0, 0))
    for end in range(0, len(data), 3):
        await raw(door[1], data[:end])
    await alive(door[1])
    await until(lambda: connections(door[0]) == 0)
    assert broker.pressure.level == 0


async def test_oversized(door: tuple[TelestoDoor, int]) -> None:
    """A frame beyond the limit is refused by its length, with a reason, and the connection closed."""
    peer = await open_peer(door[1])
    await peer.hello()
    peer.write(struct.pack(">I", native.MAX_FRAME + 1))
    text = await peer.refused(ErrorCode.PROTOCOL)
    assert str(native.MAX_FRAME) in text
    assert await peer.closed()
    await peer.close()
    await alive(door[1])


async def test_a_body_too_large(door: tuple[TelestoDoor, int], broker: Broker) -> None:
    """A body beyond the limit is refused, and the connection goes on."""
    peer = await open_peer(door[1])
    await peer.hello()
    peer.send(packets.Publish(2, "t", [b"x" * (broker.limits.max_body + 1)]))
    await peer.refused(ErrorCode.INVALID)
    assert isinstance(await peer.ask(packets.Ping), packets.Pong)
    await peer.close()


async def test_random_bytes(door: tuple[TelestoDoor, int], broker: Broker) -> None:
    """Random bytes, from the beginning or after a good Hello, never bring the node down."""
    dice = random.Random(7)
    for n in range(60):
        noise = dice.randbytes(dice.randrange(1, 300))
        beginning = (b"", native.MAGIC, HELLO, HELLO + struct.pack(">I", len(noise)))[n % 4]
        await raw(door[1], beginning + noise)
    await alive(door[1])
    await until(lambda: connections(door[0]) == 0)
    await until(lambda: broker.pressure.level == 0)


async def test_mutated_packets(door: tuple[TelestoDoor, int], broker: Broker) -> None:
    """Good packets with wrong bytes in them are answered or refused; the connection stays in step."""
    dice = random.Random(11)
    good = [
        packets.Publish(2, "t", [b"x", b"y"], ["k", None], None, 0, 0),
        packets.Put(3, ["q"], [b"x"], [5], [1], [2], ['{"a": "b"}']),
        packets.Take(4, "q", 1, 1, 0, 0, 0),
        packets.Subscribe(5, "t", "s"),
        packets.Confirm(6, "t", "s", 1, 0),
        packets.SetRetention(7, "t", "size", None, 10**9),
    ]
    peer = await open_peer(door[1])
    await peer.hello()
    for _ in range(200):
        payload = bytearray(native.encode(dice.choice(good))[4:])
        payload[dice.randrange(2, len(payload))] = dice.randrange(256)
        peer.write(struct.pack(">I", len(payload)) + payload)
    peer.send(packets.Ping(424242))
    while (answer := await peer.receive()).request != 424242:
        assert not (isinstance(answer, packets.Error) and answer.code == ErrorCode.INTERNAL), answer
    await peer.close()
    await until(lambda: broker.pressure.level == 0)


async def test_who_never_reads(node: "nuncius.testing.Broker") -> None:
    """A client that asks for much and never reads makes the node stop reading from it, not grow."""
    async with node.async_client() as client:
        await client.publish_batch("large", [b"x" * 900_000] * 20)
        await client.create_queue("idle")
    process = psutil.Process(node.pid)
    before = process.memory_info().rss
    greedy = [await open_peer(node.port) for _ in range(3)]
    for peer in greedy:
        await peer.hello()
        peer.send(*(packets.Fetch(n, "large", 1, n % 20, 100) for n in range(10, 1010)))
    peak = 0
    async with node.async_client() as client:
        for n in range(60):
            await client.publish("small", b"%d" % n)
            peak = max(peak, process.memory_info().rss)
    assert (peak - before) < 300 * MEGABYTE, (peak - before) // MEGABYTE
    for peer in greedy:
        await peer.close()
    await alive(node.port)


async def test_who_is_delivered_to_and_never_reads(node: "nuncius.testing.Broker") -> None:
    """A subscriber with much credit that never reads gets as much as fits, and others are served."""
    async with node.async_client() as client:
        for _ in range(5):
            await client.publish_batch("deliveries", [b"x" * 900_000] * 20)
        process = psutil.Process(node.pid)
        before = process.memory_info().rss
        peer = await open_peer(node.port)
        await peer.hello()
        await peer.ask(packets.Subscribe, "deliveries", "s", "earliest")
        for n in range(100, 140):
            peer.send(packets.Attach(n, "deliveries", "s", 1_000_000))
        peak = 0
        for n in range(60):
            await client.publish("small", b"%d" % n)
            peak = max(peak, process.memory_info().rss)
        assert (peak - before) < 300 * MEGABYTE, (peak - before) // MEGABYTE
        await peer.close()


async def test_who_takes_and_never_reads(node: "nuncius.testing.Broker") -> None:
    """Somebody who asks for many large messages and never reads gets a few; the rest is left to others."""
    async with node.async_client() as client:
        await client.create_queue("large")
        for _ in range(12):
            await client.put_batch("large", [b"x" * 1_000_000] * 20)
        process = psutil.Process(node.pid)
        before = process.memory_info().rss
        peer = await open_peer(node.port)
        await peer.hello()
        peer.send(*(packets.Take(n, "large", 1 + n % 1000, wait_ms=60_000) for n in range(10, 3010)))
        peak = 0
        for n in range(60):
            await client.publish("small", b"%d" % n)
            peak = max(peak, process.memory_info().rss)
        assert (peak - before) < 150 * MEGABYTE, (peak - before) // MEGABYTE
        assert await client.take("large") is not None
        (state,) = await client.queues("large")
        assert state.depth > 150
        await peer.close()
        await client.delete_queue("large")


async def test_who_only_begins(node: "nuncius.testing.Broker") -> None:
    """Connections that begin large frames and never end them do not fill the node's memory."""
    process = psutil.Process(node.pid)
    before = process.memory_info().rss
    peers: list[NativePeer] = []
    for _ in range(40):
        peer = await open_peer(node.port)
        peers.append(peer)
        peer.write(HELLO + struct.pack(">I", native.MAX_FRAME) + bytes(native.MAX_FRAME - 1))
    await alive(node.port)
    peak = process.memory_info().rss
    for _ in range(40):
        await alive(node.port)
        peak = max(peak, process.memory_info().rss)
    assert (peak - before) < 800 * MEGABYTE, (peak - before) // MEGABYTE
    for peer in peers:
        await peer.close()
    await alive(node.port)


async def test_two_thousand_idle_connections(node: "nuncius.testing.Broker") -> None:
    """Two thousand connections that say nothing, or only Hello, cost little and hold nobody up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 5000 if hard == resource.RLIM_INFINITY else min(5000, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    process = psutil.Process(node.pid)
    before = process.memory_info().rss
    loop = asyncio.get_running_loop()
    idle: list[socket.socket] = []
    try:
        for n in range(2000):
            quiet = socket.socket()
            quiet.setblocking(False)
            await loop.sock_connect(quiet, ("127.0.0.1", node.port))
            idle.append(quiet)
            if n % 2:
                await loop.sock_sendall(quiet, HELLO)
        async with node.async_client() as client:
            for n in range(20):
                await client.publish("small", b"%d" % n)
        assert process.memory_info().rss - before < 100 * MEGABYTE
    finally:
        for quiet in idle:
            quiet.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await alive(node.port)


async def test_a_flood_of_publishes(node: "nuncius.testing.Broker") -> None:
    """Clients that publish as fast as they can are slowed down, not swallowed."""
    process = psutil.Process(node.pid)
    before = process.memory_info().rss
    peak = 0

    async def flood(number: int) -> None:
        nonlocal peak
        peer = await open_peer(node.port)
        await peer.hello()
        body = os.urandom(100_000)
        for n in range(200):
            peer.send(packets.Publish(n + 2, f"flood {number}", [body]))
        for _ in range(200):
            await peer.expect(packets.Published)
            peak = max(peak, process.memory_info().rss)
        await peer.close()

    await asyncio.gather(*map(flood, range(10)))
    assert (peak - before) < 700 * MEGABYTE, (peak - before) // MEGABYTE
