"""Members of the ring: how a node finds the others, and what it stores about them.

One node is the master and is configured with the number of nodes. The others register with it every second
until it knows them all; then every node gets the same list. Each node stores the list, so that an interrupted
ring comes back as it was, with nodes that were added later.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from nuncius.ring.peers import Connect, Registered
from nuncius.ring.ring import NodePlace, Ring
from nuncius.ring.storage import StorageError
from nuncius.store.calls.keys import Keys

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
RING = "ring"
COUNT = "ring began with"


class CannotRegister(StorageError):
    """The master does not accept this node; the message says why."""


def ring_note(ring: Ring) -> dict[str, Any]:
    return {
        "version": ring.version,
        "places": [[place.node_id, place.host_port] for place in ring.places],
    }


def noted_ring(notes: dict[str, Any]) -> Ring | None:
    note = notes.get(RING)
    if note is None:
        return None
    return Ring([NodePlace(node_id, host_port) for node_id, host_port in note["places"]], note["version"])


def noted_count(notes: dict[str, Any]) -> int:
    """Return the number of nodes at the start of the ring if this node was its master, otherwise 0."""
    count: int = notes.get(COUNT, 0)
    return count


class Master:
    """The node that the others register with. A ring of one needs no other node."""

    def __init__(self, me: Sequence[NodePlace], count: int, before: Ring | None, began_with: int = 0) -> None:
        """Start as master. An earlier ring is restored if its number of nodes, at its start or now, is the
        one asked for."""
        self._count = count
        self._before: Ring | None = None
        if before is not None and count in (began_with, len(before.nodes)) and _agrees(before, me):
            self._before = before
        self._version = 1 if before is None else before.version + 1
        self._nodes: dict[str, Sequence[NodePlace]] = {me[0].host_port: me}
        self._me = me[0].host_port
        self.ring: Ring | None = None
        self._complete = asyncio.Event()
        self._look()

    def register(self, places: Sequence[NodePlace]) -> Registered:
        """Register a node, maybe again, and then with another id if it was started with one. A caller without
        an address only asks for the ring."""
        host_port = places[0].host_port
        if self.ring is None and host_port not in ("", self._me):
            taken = {
                place.node_id for node, others in self._nodes.items() if node != host_port for place in others
            }
            if taken.intersection(place.node_id for place in places):
                raise CannotRegister(f"the id {places[0].node_id} is taken by another node")
            self._nodes[host_port] = places
            self._look()
        if self.ring is None:
            return Registered(False)
        return Registered(True, self.ring.places, self.ring.version)

    def _look(self) -> None:
        if len(self._nodes) < self._count:
            return
        places = [place for each in self._nodes.values() for place in each]
        if self._before is not None and all(_agrees(self._before, each) for each in self._nodes.values()):
            self._decide(self._before)
        else:
            self._decide(Ring(places, self._version))

    def _decide(self, ring: Ring) -> None:
        self.ring = ring
        self._complete.set()

    async def wait(self, connect: Connect) -> Ring:
        """Return the ring when all nodes have registered. Nodes of an earlier ring may still run and will not
        register again: they are asked."""
        while self.ring is None:
            if self._before is not None:
                await asyncio.gather(*(self._visit(connect, node) for node in self._before.nodes))
            try:
                async with asyncio.timeout(RETRY_SECONDS):
                    await self._complete.wait()
            except TimeoutError:
                continue
        return self.ring

    async def _visit(self, connect: Connect, node: str) -> None:
        if node == self._me:
            return
        try:
            ring = await connect(node).ring()
        except Exception as error:
            log.debug("a node of the ring is not there", extra={"node": node, "error": str(error)})
            return
        if self.ring is not None or self._before is None or ring is None:
            return
        if ring.version >= self._before.version and _agrees(ring, self._nodes[self._me]):
            self._decide(ring)


def _agrees(ring: Ring, places: Sequence[NodePlace]) -> bool:
    """Return True if a node is in a ring with exactly these ids."""
    mine = {place for place in ring.places if place.host_port == places[0].host_port}
    return mine == set(places)


async def register(me: Sequence[NodePlace], master: str, connect: Connect) -> Ring:
    """Register with the master every second until all nodes have registered."""
    complained = False
    while True:
        try:
            answer = await connect(master).register(me)
        except CannotRegister:
            raise
        except Exception as error:
            if not complained:
                complained = True
                log.warning("the master is not there yet", extra={"master": master, "error": str(error)})
        else:
            if answer.ready:
                ring = Ring(answer.places, answer.version)
                if not _agrees(ring, me):
                    raise CannotRegister(
                        f"the ring of {master} is complete without this node: start it with -join to add it"
                    )
                return ring
        await asyncio.sleep(RETRY_SECONDS)


async def remember(keys: Keys, ring: Ring, count: int) -> None:
    await keys.note({RING: ring_note(ring), COUNT: count})
