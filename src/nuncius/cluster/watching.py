"""A node's entry in the table of nodes: sends a heartbeat and reads the other nodes once a second."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import asyncpg

from nuncius.cluster.members import ClusterMember, ClusterMembers
from nuncius.store.errors import StoreError

log = logging.getLogger(__name__)

PULSE_SECONDS = 1.0


class Watch:
    def __init__(
        self,
        members: ClusterMembers,
        heard: Callable[[Sequence[ClusterMember]], Awaitable[None]],
        seconds: float = PULSE_SECONDS,
    ) -> None:
        self._members = members
        self._heard = heard
        self._seconds = seconds
        self._node_id = 0
        self._link_port = 0
        self.task: asyncio.Task[None] | None = None

    async def begin(
        self,
        host: str,
        port: int,
        link_port: int,
        roles: Sequence[str],
        store_id: int = 1,
        holder: int | None = None,
    ) -> None:
        """Enter the table of nodes and keep the entry alive: other nodes may use this one."""
        self._enter = partial(self._members.enter, host, port, link_port, roles, store_id, holder)
        self._link_port = link_port
        self._node_id = await self._enter()
        await self.look()
        self.task = asyncio.get_running_loop().create_task(self._pulse())

    async def end(self) -> bool:
        """Leave the table of nodes. Return True if that was stored."""
        if self.task is None:
            return False
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        self.task = None
        with contextlib.suppress(StoreError, asyncpg.PostgresError):
            await self._members.leave(self._node_id, self._link_port)
            return True
        return False

    async def look(self) -> None:
        await self._heard(await self._members.everybody())

    async def _pulse(self) -> None:
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        while True:
            await asyncio.sleep(self._seconds)
            try:
                if not await self._members.hear(self._node_id):
                    self._node_id = await self._enter()
                if loop.time() - looked_at > self._members.silence / 2:
                    # The store was away: wait until the other nodes have sent heartbeats again.
                    await asyncio.sleep(self._seconds)
                await self.look()
                looked_at = loop.time()
            except (StoreError, asyncpg.PostgresError) as error:
                log.warning("no news of the cluster", extra={"error": str(error)})
            except Exception:
                log.exception("a look at the cluster failed by a fault of ours")
