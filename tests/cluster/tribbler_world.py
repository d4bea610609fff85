"""Tribbler on a ring of nodes in this process, each with a database of its own, without sockets."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from nuncius.ring.lease_clock import Clock
from nuncius.ring.leases import GrantedLeases
from nuncius.ring.owner import Owner
from nuncius.ring.peers import FoundKey
from nuncius.ring.ring import NodePlace, Ring
from nuncius.ring.storage import KeyStatus, Post
from nuncius.ring.storage_ring import RingStorage
from nuncius.ring.tribbler.local import LocalPosts
from nuncius.ring.tribbler.model import user_key
from nuncius.ring.tribbler.posting import Posting
from nuncius.ring.tribbler.recent import Posts
from nuncius.ring.tribbler.tribbler import Tribbler
from nuncius.store.calls.keys import Keys, Mention
from nuncius.store.store import Store


class CountingStorage(RingStorage):
    """A storage layer that counts the calls of its user."""

    calls: Counter[str]

    async def get(self, key: str) -> str | None:
        self.calls["get"] += 1
        self.calls["keys"] += 1
        return await super().get(key)

    async def put(self, key: str, value: str) -> None:
        self.calls["put"] += 1
        await super().put(key, value)

    async def raise_to(self, key: str, number: int) -> None:
        self.calls["raise_to"] += 1
        await super().raise_to(key, number)

    async def get_list(self, key: str) -> list[str]:
        self.calls["get_list"] += 1
        return await super().get_list(key)

    async def append(self, key: str, item: str) -> KeyStatus:
        self.calls["append"] += 1
        return await super().append(key, item)

    async def remove(self, key: str, item: str) -> KeyStatus:
        self.calls["remove"] += 1
        return await super().remove(key, item)

    async def get_many(self, keys: Sequence[str]) -> list[str | None]:
        self.calls["get_many"] += 1
        self.calls["keys"] += len(keys)
        return await super().get_many(keys)

    async def get_lists(self, keys: Sequence[str]) -> list[list[str]]:
        self.calls["get_lists"] += 1
        self.calls["keys"] += len(keys)
        return await super().get_lists(keys)

    async def put_and_publish(self, post: Post) -> int:
        self.calls["post"] += 1
        return await super().put_and_publish(post)

    def post_soon(self, post: Post, done: Callable[[Any], None]) -> bool:
        self.calls["post"] += 1
        return super().post_soon(post, done)


class DirectPeer:
    """Another node's storage layer, called as it is."""

    def __init__(self, storage: RingStorage) -> None:
        self._storage = storage

    async def read(
        self, lists: bool, keys: Sequence[str], wants: Sequence[bool], client: str
    ) -> Sequence[FoundKey]:
        return await self._storage.read_for(lists, keys, wants, client)

    async def write(self, kind: int, key: str, item: str, mention: Mention | None) -> int:
        return await self._storage.write(kind, key, item, mention)


class Node:
    """One node: its storage layer and its application."""

    def __init__(self, world: "World", name: str, store: Store, timelines_from: int) -> None:
        self._world = world
        clock = Clock()

        async def revoke(holder: str, key: str) -> bool:
            world.nodes[holder].ring_storage.revoked(key)
            return True

        async def note(_: float) -> None: ...

        keys = Keys(store)
        owner = Owner(keys, GrantedLeases(clock, revoke, note))
        connect: Callable[[str], DirectPeer] = lambda other: DirectPeer(world.nodes[other].ring_storage)  # noqa: E731
        self.name = name
        self.store = store
        self.storage = CountingStorage(name, owner, connect, clock)  # type: ignore[arg-type]
        self.storage.calls = Counter()
        self.ring_storage = self.storage
        self.posting = Posting(self.storage)
        self.local = LocalPosts(store.query)
        self.tribbler = Tribbler(self.storage, self, timelines_from=timelines_from)

    # What the application asks of its peers

    def names(self) -> Sequence[str]:
        return list(self._world.nodes)

    async def post(self, user: str, contents: str) -> None:
        ring = self.ring_storage.ring
        assert ring is not None
        await self._world.nodes[ring.owner(user_key(user))].posting.post(user, contents)

    async def recent(self, node: str, offsets: list[int] | None) -> Posts:
        self.storage.calls["recent"] += 1
        return await self._world.nodes[node].local.recent(offsets)


class World:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}

    @property
    def first(self) -> Node:
        return next(iter(self.nodes.values()))


@contextlib.asynccontextmanager
async def world(dsns: Sequence[str], *, timelines_from: int = 200) -> AsyncIterator[World]:
    """A ring whose nodes share the circle evenly."""
    made = World()
    places = [NodePlace((n + 1) * (2**32 // len(dsns)) - 1, f"node-{n}") for n in range(len(dsns))]
    stores = [Store(dsn) for dsn in dsns]
    await asyncio.gather(*(store.open() for store in stores))
    try:
        for place, store in zip(places, stores, strict=True):
            node = Node(made, place.host_port, store, timelines_from)
            made.nodes[place.host_port] = node
            node.ring_storage.enter(Ring(places))
        yield made
    finally:
        for store in stores:
            await store.drain()
            await store.close()
