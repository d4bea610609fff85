"""Add a node to a running ring.

The master builds the next version of the ring and sends it to every node, first to those that give keys away:
if that fails, nothing has changed for the others. A node that gives keys away freezes them: changes wait,
leases are revoked, reads go on. It sends the keys to the new node, which commits them. Then it commits, in
one transaction, the new ring and the loss of those keys; from then on it forwards requests for them. So every
key has exactly one owner at any time, recorded in PostgreSQL, and a crash at any point leaves the old owner
or the new one. Nodes with the old ring ask the old owner and are forwarded. The new node answers no request
before all have committed.

Every step can be repeated: a new node whose joining was interrupted asks again.
"""

import asyncio
import logging
from collections.abc import Sequence

from nuncius.ring.members import RETRY_SECONDS, RING, ring_note
from nuncius.ring.owner import Owner
from nuncius.ring.peers import Connect
from nuncius.ring.ring import HashRange, NodePlace, Ring
from nuncius.ring.storage import OwnerSilent, StorageError
from nuncius.ring.storage_ring import RingStorage
from nuncius.store.calls.keys import KeyRow, Keys
from nuncius.store.errors import StoreError

log = logging.getLogger(__name__)

ROWS = 200  # keys of a call, at most
BYTES = 4 << 20  # of them, approximately
NO_MASTER = "is not the master of a ring"


class CannotJoin(StorageError):
    """The ring cannot accept the node; the message says why."""


class Handover:
    """Changes of the ring, as a node performs them."""

    def __init__(self, storage: RingStorage, owner: Owner, keys: Keys, connect: Connect) -> None:
        self._storage = storage
        self._owner = owner
        self._keys = keys
        self._connect = connect
        self.is_master = False
        """Only one node of a ring admits others: two would create two different rings."""
        self._changing = asyncio.Lock()
        self._joining = asyncio.Lock()

    async def join(self, places: Sequence[NodePlace]) -> Ring:
        """Admit a node, as the master. Return the ring when every node has it."""
        async with self._joining:
            ring = self._storage.ring
            if ring is None:
                raise CannotJoin("the ring is not complete yet")
            if not self.is_master:
                raise CannotJoin(f"{self._storage.me} {NO_MASTER}")
            mine = {place for place in ring.places if place.host_port == places[0].host_port}
            if mine and mine != set(places):
                raise CannotJoin(f"{places[0].host_port} is in the ring with other ids")
            if not mine:
                taken = {place.node_id for place in ring.places}
                if taken.intersection(place.node_id for place in places):
                    raise CannotJoin(f"the id {places[0].node_id} is taken by another node")
            new = ring if mine else ring.with_places(places)
            nodes = [node for node in ring.nodes if node != places[0].host_port]
            # Check first that all nodes answer, the new one under the address that it gives.
            asked = [*(node for node in nodes if node != self._storage.me), places[0].host_port]
            await asyncio.gather(*(self._connect(node).ring() for node in asked))
            givers = [node for node in nodes if ring.moved(new, node)]
            for some in (givers, [node for node in nodes if node not in givers]):
                await asyncio.gather(*(self._hand_over(node, new) for node in some))
            return new

    async def _hand_over(self, node: str, new: Ring) -> None:
        if node == self._storage.me:
            await self.change(new)
        else:
            await self._connect(node).hand_over(new)

    async def change(self, new: Ring) -> None:
        """Change to a new ring, and hand over the keys that move. Every node does this."""
        async with self._changing:
            ring = self._storage.ring
            if ring is None:
                raise CannotJoin("this node is in no ring yet")
            if new.version <= ring.version:
                if new.version == ring.version and new.places != ring.places:
                    raise CannotJoin("another change of the ring is not finished")
                return
            moves = ring.moved(new, self._storage.me)
            async with self._owner.frozen([stretch for stretch, _ in moves]):
                for target in sorted({target for _, target in moves}):
                    await self._send(target, [stretch for stretch, to in moves if to == target])
                self._owner.leave()
                await self._commit(new, [(stretch.first, stretch.last) for stretch, _ in moves])
                self._storage.enter(new)

    async def _send(self, target: str, stretches: Sequence[HashRange]) -> None:
        peer = self._connect(target)
        await peer.take(stretches, [])
        for stretch in stretches:
            after: KeyRow | None = None
            while rows := await self._keys.export(stretch.first, stretch.last, after, ROWS):
                after = rows[-1]
                for some in _portions(rows):
                    await peer.take([], some)

    async def _commit(self, new: Ring, forget: Sequence[tuple[int, int]]) -> None:
        """Commit the new ring. Reads wait meanwhile, so that none misses keys that were just forgotten."""
        while True:
            try:
                await self._keys.note({RING: ring_note(new)}, forget=forget)
            except StoreError as error:  # the commit may have happened: only a retry is safe
                log.warning("the change of the ring waits for the store", extra={"error": str(error)})
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def take(self, forget: Sequence[HashRange], rows: Sequence[KeyRow]) -> None:
        """Store keys that the new node will own."""
        if self._storage.ring is not None:
            raise CannotJoin("this node is in a ring already")
        await self._keys.adopt([(stretch.first, stretch.last) for stretch in forget], rows)


async def join(me: Sequence[NodePlace], master: str, connect: Connect) -> Ring:
    """Ask the master every second to admit the new node."""
    complained = False
    while True:
        try:
            return await connect(master).join(me)
        except CannotJoin:
            raise
        except (OwnerSilent, StorageError) as error:
            if not complained:
                complained = True
                log.warning("joining takes another try", extra={"master": master, "error": str(error)})
        await asyncio.sleep(RETRY_SECONDS)


def _portions(rows: Sequence[KeyRow]) -> list[list[KeyRow]]:
    """Split rows into few large messages below the size limit."""
    portions: list[list[KeyRow]] = [[]]
    size = 0
    for row in rows:
        portions[-1].append(row)
        size += len(row.key) + len(row.value or "") + sum(map(len, row.items or ()))
        if size > BYTES:
            portions.append([])
            size = 0
    return [portion for portion in portions if portion]
