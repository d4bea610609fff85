"""Load generators for STOMP, in a separate process, on bare sockets so that they do not limit the figures.

python -m nuncius.bench.load.stomp NAME PORT AMOUNT   prints figures as JSON
"""

import asyncio
import json
import re
import socket
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

CONNECT = b"CONNECT\naccept-version:1.2\nhost:bench\nheart-beat:0,0\n\n\0"
BODY = b"x" * 100
IN_FLIGHT = 256
SUBSCRIBERS = 50
CONSUMERS = 4
BURST = 1000
ACK = re.compile(rb"\nack:([^\n]+)\n")


class Tally:
    """A counter that tasks can wait on until it reaches a number."""

    def __init__(self) -> None:
        self.count = 0
        self._wanted = 0
        self._enough = asyncio.Event()
        self._error = b""

    def add(self, count: int) -> None:
        self.count += count
        if self.count >= self._wanted:
            self._enough.set()

    def fail(self, error: bytes) -> None:
        self._error = error
        self._enough.set()

    async def reach(self, wanted: int) -> None:
        self._wanted = wanted
        self._enough.clear()
        async with asyncio.timeout(120):
            if self.count < wanted and not self._error:
                await self._enough.wait()
        if self._error:
            raise RuntimeError(f"the load was refused: {self._error!r}")


class LoadPeer(asyncio.Protocol):
    """A connection that counts received frames by their final NUL. Bodies here contain none."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.heard: Callable[[LoadPeer, bytes], None] | None = None
        self.connected = asyncio.Event()
        self._gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.transport.write(CONNECT)

    def data_received(self, data: bytes) -> None:
        frames = data.count(b"\0")
        if data.startswith(b"ERROR\n") or b"\0ERROR\n" in data:
            self.tally.fail(data[data.index(b"ERROR\n") :][:200])
        if not self.connected.is_set():
            self.connected.set()
            frames -= 1
        self.tally.add(frames)
        if self.heard is not None:
            self.heard(self, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._gone.set()

    async def end(self) -> None:
        self.transport.abort()
        await self._gone.wait()


async def open_peer(port: int, tally: Tally | None = None) -> LoadPeer:
    counted = tally or Tally()
    _, peer = await asyncio.get_running_loop().create_connection(lambda: LoadPeer(counted), "127.0.0.1", port)
    async with asyncio.timeout(60):
        await peer.connected.wait()
    return peer


def send_frame(destination: str, receipt: int) -> bytes:
    head = f"SEND\ndestination:{destination}\nreceipt:{receipt}\ncontent-length:{len(BODY)}\n\n"
    return head.encode() + BODY + b"\0"


async def send_all(port: int, destination: str, total: int) -> None:
    """Send with receipts, batch after batch. Return when all messages are stored."""
    publisher = await open_peer(port)
    try:
        for first in range(0, total, IN_FLIGHT):
            count = min(IN_FLIGHT, total - first)
            publisher.transport.write(b"".join(send_frame(destination, n) for n in range(count)))
            await publisher.tally.reach(first + count)
    finally:
        await publisher.end()


async def send_receipt(port: int, seconds: float) -> dict[str, float]:
    """Send with receipts on one connection, with IN_FLIGHT sends under way: each receipt allows the next."""
    deadline = time.perf_counter() + seconds
    sent = IN_FLIGHT

    def heard(peer: LoadPeer, data: bytes) -> None:
        nonlocal sent
        count = data.count(b"\0")
        if time.perf_counter() < deadline:
            peer.transport.write(b"".join(send_frame("/topic/bench", sent + n) for n in range(count)))
            sent += count

    peer = await open_peer(port)
    peer.heard = heard
    start = time.perf_counter()
    peer.transport.write(b"".join(send_frame("/topic/bench", n) for n in range(IN_FLIGHT)))
    await asyncio.sleep(seconds)
    await peer.tally.reach(sent)
    passed = time.perf_counter() - start
    await peer.end()
    return {"send_receipt_256": sent / passed}


async def fanout(port: int, messages: float, *, sleepers: int = 0) -> dict[str, float]:
    """Publish to many subscribers of one topic. `sleepers` of them never read."""
    topic = f"/topic/fan-{time.time_ns()}"
    subscribe = f"SUBSCRIBE\nid:0\ndestination:{topic}\nreceipt:s\n\n\0".encode()
    heard, ignored = Tally(), Tally()
    readers = [await open_peer(port, ignored if n < sleepers else heard) for n in range(SUBSCRIBERS)]
    for peer in readers:
        peer.transport.write(subscribe)
    awake, total = SUBSCRIBERS - sleepers, int(messages)
    await heard.reach(awake)
    await ignored.reach(sleepers)
    for peer in readers[:sleepers]:
        peer.transport.pause_reading()
    start = time.perf_counter()
    await send_all(port, topic, total)
    await heard.reach(awake + total * awake)
    figure = total * awake / (time.perf_counter() - start)
    for peer in readers:
        await peer.end()
    return {"fanout": figure}


async def queue(port: int, messages: float) -> dict[str, float]:
    """Send messages to competing consumers that acknowledge each one."""
    name = f"/queue/bench-{time.time_ns()}"
    total, acknowledged = int(messages), Tally()
    rest: dict[LoadPeer, bytes] = {}

    def heard(peer: LoadPeer, data: bytes) -> None:
        whole, _, rest[peer] = (rest.get(peer, b"") + data).rpartition(b"\0")
        acks = ACK.findall(whole)
        peer.transport.write(b"".join(b"ACK\nid:" + each + b"\n\n\0" for each in acks))
        acknowledged.add(len(acks))

    consumers = [await open_peer(port) for _ in range(CONSUMERS)]
    for peer in consumers:
        peer.heard = heard
        head = f"SUBSCRIBE\nid:0\ndestination:{name}\nack:client-individual\nprefetch-count:100\n\n\0"
        peer.transport.write(head.encode())
    start = time.perf_counter()
    await send_all(port, name, total)
    await acknowledged.reach(total)
    for peer in consumers:  # the receipt shows that everything sent before was handled
        before = peer.tally.count
        peer.transport.write(b"DISCONNECT\nreceipt:end\n\n\0")
        await peer.tally.reach(before + 1)
    figure = total / (time.perf_counter() - start)
    for peer in consumers:
        await peer.end()
    return {"queue": figure}


async def burst(port: int, amount: float) -> dict[str, float]:
    """Open many connections at once. Every CONNECT must be answered."""
    start = time.perf_counter()
    peers = await asyncio.gather(*(open_peer(port) for _ in range(int(amount))))
    passed = time.perf_counter() - start
    for peer in peers:
        await peer.end()
    return {"connect_burst": len(peers) / passed}


LOADS: dict[str, Callable[[int, float], Awaitable[dict[str, float]]]] = {
    "send_receipt": send_receipt,
    "fanout": fanout,
    "slow": lambda port, amount: fanout(port, amount, sleepers=1),
    "queue": queue,
    "burst": burst,
}


async def main(name: str, port: int, amount: float) -> None:
    sys.stdout.write(json.dumps(await LOADS[name](port, amount)))


if __name__ == "__main__":
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    socket.setdefaulttimeout(60)
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
