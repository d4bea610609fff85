"""Ownership of the keys in a store: one owner, or several nodes without memory, never both.

A node of a ring answers from memory and grants leases, so no other process may change the keys in its store.
It holds an advisory lock as long as it runs; nodes that only pass calls on to PostgreSQL share that lock. A
new owner waits for operations that the last one had in progress when it died: they could be committed after
its first read.
"""

import asyncio
import logging
from collections.abc import Callable

from nuncius.ring.storage import StorageError
from nuncius.store.connecting import CONNECTION_ERRORS
from nuncius.store.errors import StoreUnavailable
from nuncius.store.queries import query
from nuncius.store.store import Store

log = logging.getLogger(__name__)

PATIENCE = 5.0  # seconds that the connection of a killed process may take to end
PAUSE = 0.1

OWN = query("ring", "own")
SHARE = query("ring", "share")
WAIT_FOR_WRITES = query("ring", "wait_for_writes")


class OwnedByAnother(StorageError):
    """Another process owns the keys in this store."""


class Ownership:
    def __init__(self, store: Store, *, shared: bool, lost: Callable[[Exception], None]) -> None:
        self._lane = store.lane("keys owner")
        self._lock = SHARE if shared else OWN
        self._shared = shared
        self._lost = lost
        self._gone = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def take(self) -> None:
        await self._take()
        self._keeper = asyncio.ensure_future(self._keep())

    async def _take(self) -> None:
        connection = await self._lane.connection()
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while not await connection.fetchval(self._lock):
            if asyncio.get_running_loop().time() > deadline:
                raise OwnedByAnother(
                    "another process owns the keys in this store: end it, or use a store of your own"
                )
            await asyncio.sleep(PAUSE)
        if not self._shared:
            await connection.execute(WAIT_FOR_WRITES)
        self._gone.clear()
        connection.add_termination_listener(self._ended)

    def _ended(self, _: object) -> None:
        self._gone.set()

    async def _keep(self) -> None:
        """Take the lock again when the server is back: the lock ends with its connection."""
        complained = False
        while True:
            await self._gone.wait()
            try:
                await self._take()
            except CONNECTION_ERRORS:
                self._lane.discard()
            except StoreUnavailable as error:
                if not complained:
                    complained = True
                    log.warning("the lock on the keys waits for the store", extra={"error": str(error)})
                await asyncio.sleep(PAUSE)
            except OwnedByAnother as error:
                self._lost(error)
                return
            else:
                complained = False

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait((self._keeper,))
        await self._lane.close()
