"""A node of the ring: all its parts, put together on a store."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable, Sequence

from nuncius.ring import handover as ring_handover
from nuncius.ring import members as ring_members
from nuncius.ring.handover import Handover
from nuncius.ring.lease_clock import Clock
from nuncius.ring.leases import GrantedLeases
from nuncius.ring.members import CannotRegister, Master
from nuncius.ring.owner import Owner
from nuncius.ring.ownership import Ownership
from nuncius.ring.peers import Connect, Registered
from nuncius.ring.ring import NodePlace, Ring, more_ids
from nuncius.ring.settings import RingSettings
from nuncius.ring.storage_ring import RingStorage
from nuncius.store.calls.keys import Keys
from nuncius.store.store import Store

log = logging.getLogger(__name__)

LEASES_UNTIL = "leases until"
NODE_ID = "node id"


class StorageNode:
    def __init__(
        self,
        store: Store,
        connect: Connect,
        settings: RingSettings | None = None,
        *,
        clock: Clock | None = None,
        give_up: Callable[[Exception], None] = lambda error: None,
        published: Callable[[int], None] = lambda topic_id: None,
    ) -> None:
        """Prepare a node on an open store. `give_up` is called when another process has become the owner of
        the keys, `published` when a topic has new entries."""
        self._settings = settings
        self._connect = connect
        self._clock = clock or Clock()
        self.store = store
        self._published = published
        self._ownership = Ownership(store, shared=settings is None, lost=give_up)
        self._opened = contextlib.AsyncExitStack()
        self._master: Master | None = None
        self._leases: GrantedLeases | None = None

    async def open(self) -> None:
        """Take the keys of the store. The node answers no requests before it is in a ring."""
        self._opened.push_async_callback(self._ownership.close)
        await self._ownership.take()
        self.keys = Keys(self.store, self._published)
        self._opened.push_async_callback(self._give_leases_up)
        self._opened.push_async_callback(self.keys.drain)
        await self.store.connect_lanes()
        self._notes = await self.keys.notes()
        settings = self._settings
        if settings is not None:
            noted = float(self._notes.get(LEASES_UNTIL, 0.0))
            self._leases = GrantedLeases(self._clock, self._revoke, self._note_leases, noted=noted)
        owner = Owner(self.keys, self._leases)
        caching = settings is not None and settings.caching
        self.storage = RingStorage("", owner, self._connect, self._clock, caching=caching)
        self.handover = Handover(self.storage, owner, self.keys, self._connect)

    async def enter(self, host_port: str) -> Ring:
        """Find the other nodes. Returns when the ring is complete."""
        self.storage.me = host_port
        if self._settings is None:
            ring = Ring([NodePlace(0, host_port)])
        else:
            ring = await self._find_ring(self._settings, await self._places(self._settings, host_port))
            count = 0 if self._master is None else self._settings.count
            await ring_members.remember(self.keys, ring, count)
        self.storage.enter(ring)
        log.info("in the ring", extra={"nodes": len(ring.nodes), "version": ring.version})
        return ring

    async def _places(self, settings: RingSettings, host_port: str) -> Sequence[NodePlace]:
        node_id = settings.node_id or self._notes.get(NODE_ID) or 1 + secrets.randbelow(2**32 - 1)
        await self.keys.note({NODE_ID: node_id})
        return [NodePlace(each, host_port) for each in more_ids(node_id, settings.ids)]

    async def _find_ring(self, settings: RingSettings, me: Sequence[NodePlace]) -> Ring:
        before = ring_members.noted_ring(self._notes)
        if settings.master in ("", me[0].host_port):
            began_with = ring_members.noted_count(self._notes)
            self._master = Master(me, settings.count, before, began_with)
            self.handover.is_master = True
            return await self._master.wait(self._connect)
        if settings.join:
            with contextlib.suppress(CannotRegister):
                if before is not None:
                    return await ring_members.register(me, settings.master, self._connect)
            return await ring_handover.join(me, settings.master, self._connect)
        return await ring_members.register(me, settings.master, self._connect)

    def register(self, places: Sequence[NodePlace]) -> Registered:
        """Register a node, or a client that asks for the nodes."""
        ring = self.storage.ring
        if ring is not None:
            return Registered(True, ring.places, ring.version)
        return Registered(False) if self._master is None else self._master.register(places)

    def leased(self) -> list[str]:
        """Return the keys that other nodes hold leases of, because they read them often."""
        return [] if self._leases is None else self._leases.held()

    async def _revoke(self, holder: str, key: str) -> bool:
        return await self._connect(holder).revoke(key)

    async def _note_leases(self, until: float) -> None:
        await self.keys.note({LEASES_UNTIL: until})

    async def close(self) -> None:
        """Answer all accepted calls, and leave the keys to another process. The store stays open."""
        await self._opened.aclose()

    async def _give_leases_up(self) -> None:
        if self._leases is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(2):
                    await self._leases.close()
