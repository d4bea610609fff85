"""The clients of `bench tribbler`, in a separate process, over Go's RPC.

python -m nuncius.bench.load.tribbler NAME NODES SECONDS [USER...]
"""

import asyncio
import itertools
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import cast

import uvloop

from nuncius.bench.load.core import in_flight
from nuncius.bench.ring.data import TEXT
from nuncius.doors.tribbler.rpc_client import RpcClient
from nuncius.doors.tribbler.rpc_codec import CONNECT, ClientCodec, RpcAnswer
from nuncius.doors.tribbler.storage_messages import GetArgs, GetReply, PutArgs, PutReply
from nuncius.doors.tribbler.tribserver_messages import (
    GetTribblesArgs,
    GetTribblesReply,
    PostTribbleArgs,
    StatusReply,
)

POSTERS = 64
READERS = 8  # a node
WARM = 10

Figures = dict[str, float]


async def post(nodes: Sequence[RpcClient], seconds: float, users: Sequence[str]) -> Figures:
    """Post for the users in turn, through all nodes. Return tribbles per second."""
    turns = itertools.count()

    async def one() -> None:
        n = next(turns)
        args = PostTribbleArgs(users[n % len(users)], TEXT)
        reply = await nodes[n % len(nodes)].call("Tribserver.PostTribble", args, StatusReply)
        _check(reply.status)

    return {"post": await in_flight(POSTERS, seconds, one)}


async def feed(nodes: Sequence[RpcClient], seconds: float, users: Sequence[str]) -> Figures:
    """Read feeds sequentially, through all nodes. Return the milliseconds of one read."""
    took = await _looks("GetTribblesBySubscription", nodes, seconds, users)
    return {"p50_ms": statistics.median(took), "p99_ms": statistics.quantiles(took, n=100)[98]}


async def tribbles(nodes: Sequence[RpcClient], seconds: float, users: Sequence[str]) -> Figures:
    """Read users' own tribbles, as `feed` reads feeds."""
    return {"p50_ms": statistics.median(await _looks("GetTribbles", nodes, seconds, users))}


async def hot_feed(nodes: Sequence[RpcClient], seconds: float, users: Sequence[str]) -> Figures:
    """Read one user's tribbles, through all nodes concurrently. Return reads per second."""
    loop = asyncio.get_running_loop()
    start = time.perf_counter()
    readers = []
    for node in nodes:
        host, _, port = node.address.rpartition(":")
        _, reader = await loop.create_connection(lambda: _Reader(users[0], start + seconds), host, int(port))
        readers.append(reader)
    done = sum(await asyncio.gather(*(reader.over for reader in readers)))
    return {"hot_feed": done / (time.perf_counter() - start)}


class _Reader(asyncio.Protocol):
    """A client that repeats one request and decodes only the first answer, so that the nodes' speed is what
    is measured."""

    def __init__(self, user: str, end: float) -> None:
        self._args = GetTribblesArgs(user)
        self._end = end
        self._codec = ClientCodec()
        self._numbers = itertools.count(1)
        self._under_way = READERS
        self._done = 0
        self.over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(CONNECT + b"".join(self._question() for _ in range(READERS)))

    def data_received(self, data: bytes) -> None:
        for answer in self._codec.receive(data):
            if not self._done:
                self._look_at(answer)
            self._done += 1
            if time.perf_counter() < self._end:
                self._transport.write(self._question())
            else:
                self._under_way -= 1
        if not self._under_way and not self.over.done():
            self._transport.close()
            self.over.set_result(self._done)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(RuntimeError("a node closed the connection"))

    def _question(self) -> bytes:
        return self._codec.call(next(self._numbers), "Tribserver.GetTribbles", self._args)

    def _look_at(self, answer: RpcAnswer) -> None:
        reply = self._codec.reply(answer, GetTribblesReply)
        if reply.status or not reply.tribbles:
            self.over.set_exception(RuntimeError(f"a call was answered with status {reply.status}"))
            self._transport.close()


async def revoke(nodes: Sequence[RpcClient], seconds: float, users: Sequence[str]) -> Figures:
    """Return the milliseconds of a write to a key that the first node owns and the others hold leases of."""
    owner, *holders = nodes
    key = f"{users[0]}:leased"
    took: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(took) < WARM:
        await owner.call("StorageRPC.Put", PutArgs(key, "new"), PutReply)
        for _ in range(4):
            for holder in holders:
                await holder.call("StorageRPC.Get", GetArgs(key), GetReply)
        start = time.perf_counter()
        _check((await owner.call("StorageRPC.Put", PutArgs(key, "newer"), PutReply)).status)
        took.append((time.perf_counter() - start) * 1000)
    return {"revoke_write_ms": statistics.median(took)}


async def _looks(
    method: str, nodes: Sequence[RpcClient], seconds: float, users: Sequence[str]
) -> list[float]:
    took: list[float] = []
    end = time.perf_counter() + seconds
    for n in itertools.count():
        start = time.perf_counter()
        if start > end and n >= 2 * WARM:
            return took[WARM:]
        args = GetTribblesArgs(users[n % len(users)])
        reply = await nodes[n % len(nodes)].call(f"Tribserver.{method}", args, GetTribblesReply)
        took.append((time.perf_counter() - start) * 1000)
        _check(reply.status)
    raise AssertionError


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"a call was answered with status {status}")


LOADS = {"post": post, "feed": feed, "tribbles": tribbles, "hot_feed": hot_feed, "revoke": revoke}


async def main(name: str, addresses: str, seconds: str, *users: str) -> None:
    nodes = [RpcClient(address) for address in addresses.split(",")]
    figures = await LOADS[name](nodes, float(seconds), users)
    sys.stdout.write(json.dumps(figures))
    for node in nodes:
        node.close()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
