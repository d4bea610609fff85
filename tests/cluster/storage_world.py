"""Rings in one process, on real stores, with a network between the nodes that the test controls."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from nuncius.ring.lease_clock import Clock
from nuncius.ring.peers import FoundKey, Registered, Unreached
from nuncius.ring.ring import HashRange, NodePlace, Ring
from nuncius.ring.settings import RingSettings
from nuncius.ring.storage_node import StorageNode
from nuncius.ring.storage_ring import RingStorage
from nuncius.store.calls.keys import KeyRow, Mention
from nuncius.store.store import Store

THIRDS = [2**32 // 3, 2 * (2**32 // 3), 2**32 - 1]


class Network:
    """Which node is where; how long a message takes; who answers revocations late or never."""

    def __init__(self, seed: int = 0, delay: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.delay = delay
        self.nodes: dict[str, StorageNode] = {}
        self.silent: set[str] = set()
        self.late: dict[str, float] = {}
        self.calls: Counter[str] = Counter()
        self.revoked: list[tuple[str, str]] = []

    def connect(self, address: str) -> "Peer":
        return Peer(self, address)

    async def travel(self) -> None:
        if self.delay:
            await asyncio.sleep(self.random.random() * self.delay)


class Peer:
    """A node reached over the network."""

    def __init__(self, network: Network, address: str) -> None:
        self._network = network
        self._address = address

    async def _there(self, call: str) -> StorageNode:
        self._network.calls[call] += 1
        await self._network.travel()
        node = self._network.nodes.get(self._address)
        if node is None:
            raise Unreached(f"{self._address} is not there")
        return node

    async def read(
        self, lists: bool, keys: Sequence[str], wants: Sequence[bool], client: str
    ) -> Sequence[FoundKey]:
        node = await self._there("read")
        found = await node.storage.read_for(lists, keys, wants, client)
        await self._network.travel()
        return found

    async def write(self, kind: int, key: str, item: str, mention: Mention | None) -> int:
        node = await self._there("write")
        answer = await node.storage.write(kind, key, item, mention)
        await self._network.travel()
        return answer

    async def revoke(self, key: str) -> bool:
        node = await self._there("revoke")
        self._network.revoked.append((self._address, key))
        if self._address in self._network.silent:
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(self._network.late.get(self._address, 0.0))
        node.storage.revoked(key)
        await self._network.travel()
        return True

    async def register(self, places: Sequence[NodePlace]) -> Registered:
        return (await self._there("register")).register(places)

    async def ring(self) -> Ring | None:
        return (await self._there("ring")).storage.ring

    async def join(self, places: Sequence[NodePlace]) -> Ring:
        return await (await self._there("join")).handover.join(places)

    async def hand_over(self, ring: Ring) -> None:
        await (await self._there("hand over")).handover.change(ring)

    async def take(self, forget: Sequence[HashRange], rows: Sequence[KeyRow]) -> None:
        await (await self._there("take")).handover.take(forget, rows)


@asynccontextmanager
async def node(
    network: Network, dsn: str, name: str, settings: RingSettings, clock: Clock | None = None
) -> AsyncIterator[StorageNode]:
    """A node whose port is open; it is the caller's to let it enter its ring."""
    async with opened(dsn) as store:
        made = StorageNode(store, network.connect, settings, clock=clock)
        await made.open()
        network.nodes[name] = made
        try:
            yield made
        finally:
            network.nodes.pop(name, None)
            await made.close()


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[Store]:
    """The store of a node."""
    store = Store(dsn, patience=10)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def ring(
    network: Network, dsns: Sequence[str], clock: Clock | None = None, *, caching: bool = True
) -> AsyncIterator[list[RingStorage]]:
    """A complete ring, its nodes with equal shares: the storage layer of each."""
    async with AsyncExitStack() as stack:
        nodes = []
        for n, dsn in enumerate(dsns):
            settings = RingSettings(THIRDS[n], len(dsns), "n0" if n else "", caching=caching)
            nodes.append(await stack.enter_async_context(node(network, dsn, f"n{n}", settings, clock)))
        await asyncio.gather(*(each.enter(f"n{n}") for n, each in enumerate(nodes)))
        yield [each.storage for each in nodes]


def key_of(storage: RingStorage, owner: int, number: int = 0) -> str:
    """A key that node owns: the number-th such."""
    ring = storage.ring
    assert ring is not None
    names = (f"{n}user{n}:x" for n in range(100_000))
    found = (name for name in names if ring.owner(name) == f"n{owner}")
    for _ in range(number):
        next(found)
    return next(found)
