"""Adding a node to a running ring.

The master makes the next version of the ring and tells it to every node, to those from which keys move first:
if that fails, nothing has changed for the others. A node from which keys move freezes them: changes wait,
leases are taken back, reads go on. It sends the keys to the newcomer, who commits them.
Then it commits, in one transaction, that the new ring is true and that those keys are not its own; from this
moment on it forwards what it is asked for them. So for every key there is one owner at any time, PostgreSQL
knows who, and a crash anywhere leaves the owner before or the owner after. Nodes that have not heard yet ask
the old owner and are forwarded. The newcomer answers nobody before all have committed.

Everything can be repeated: a newcomer whose joining was interrupted asks again.
"""

import asyncio
import logging
from collections.abc import Sequence

from nuncius.ring.members import RETRY_SECONDS, RING, ring_note
from nuncius.ring.owner import Owner
from nuncius.ring.peers import Connect
from nuncius.ring.ring import Place, Range, Ring
from nuncius.ring.storage import NoAnswer, StorageError
from nuncius.ring.storage_ring import RingStorage
from nuncius.store.calls.keys import KeyRow, Keys
from nuncius.store.errors import StoreError

log = logging.getLogger(__name__)

ROWS = 200  # keys of a call, at most
BYTES = 4 << 20  # of them, about
NO_MASTER = "is not the master of a ring"


class CannotJoin(StorageError):
    """The ring cannot take the node; the message says why."""


class Handover:
    """What a node does when the ring changes."""

    def __init__(self, storage: RingStorage, owner: Owner, keys: Keys, connect: Connect) -> None:
        self._storage = storage
        self._owner = owner
        self._keys = keys
        self._connect = connect
        self.is_master = False
        """One node of a ring takes others in: two would make two different rings of it."""
        self._changing = asyncio.Lock()
        self._joining = asyncio.Lock()

    async def join(self, places: Sequence[Place]) -> Ring:
        """For the master: lets a node in; answers when every node knows it."""
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
            # Nothing begins before all are seen to be there, the newcomer under the address that it gives.
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
        """For every node: the ring is this one from now on."""
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

    async def _send(self, target: str, stretches: Sequence[Range]) -> None:
        peer = self._connect(target)
        await peer.take(stretches, [])
        for stretch in stretches:
            after: KeyRow | None = None
            while rows := await self._keys.export(stretch.first, stretch.last, after, ROWS):
                after = rows[-1]
                for some in _portions(rows):
                    await peer.take([], some)

    async def _commit(self, new: Ring, forget: Sequence[tuple[int, int]]) -> None:
        """Reads wait meanwhile, so that none of them misses what has just been forgotten."""
        while True:
            try:
                await self._keys.note({RING: ring_note(new)}, forget=forget)
            except StoreError as error:  # it may have happened: there is no way back, only forward
                log.warning("the change of the ring waits for the store", extra={"error": str(error)})
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def take(self, forget: Sequence[Range], rows: Sequence[KeyRow]) -> None:
        """For the newcomer: keys that will be its own."""
        if self._storage.ring is not None:
            raise CannotJoin("this node is in a ring already")
        await self._keys.adopt([(stretch.first, stretch.last) for stretch in forget], rows)


async def join(me: Sequence[Place], master: str, connect: Connect) -> Ring:
    """For the newcomer: asks every second until it is in."""
    complained = False
    while True:
        try:
            return await connect(master).join(me)
        except CannotJoin:
            raise
        except (NoAnswer, StorageError) as error:
            if not complained:
                complained = True
                log.warning("joining takes another try", extra={"master": master, "error": str(error)})
        await asyncio.sleep(RETRY_SECONDS)


def _portions(rows: Sequence[KeyRow]) -> list[list[KeyRow]]:
    """Few large messages, none too large."""
    portions: list[list[KeyRow]] = [[]]
    size = 0
    for row in rows:
        portions[-1].append(row)
        size += len(row.key) + len(row.value or "") + sum(map(len, row.items or ()))
        if size > BYTES:
            portions.append([])
            size = 0
    return [portion for portion in portions if portion]
