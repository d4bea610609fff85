"""A node as a member of the cluster: its services to other nodes, and its use of theirs."""

import contextlib
import logging
from collections.abc import Callable, Sequence

import asyncpg

from nuncius.broker import Broker
from nuncius.cluster.link.server import LinkServer
from nuncius.cluster.members import ClusterMember, ClusterMembers
from nuncius.cluster.own_store import OwnStore
from nuncius.cluster.placement import Placement
from nuncius.cluster.rebalancing import Rebalancing
from nuncius.cluster.role_names import ALL_IN_ONE, BROKER
from nuncius.cluster.routing import Router
from nuncius.cluster.watching import PULSE_SECONDS, Watch
from nuncius.store.errors import StoreError

log = logging.getLogger(__name__)

TIDY_LOOKS = 600
REBALANCE_SECONDS = 60.0


class Participant:
    """A node with a broker inside, as a member of the cluster. Call `open` before the listeners open and
    `enter` after; at the end, `leave` before they close and `close` after."""

    def __init__(
        self,
        broker: Broker,
        roles: Sequence[str] = ALL_IN_ONE,
        *,
        own_store: str | None = None,
        link_port: int = 0,
        pulse: float = PULSE_SECONDS,
        rebalance_after: float = REBALANCE_SECONDS,
    ) -> None:
        self._broker = broker
        self._roles = roles
        self._wanted_port = link_port
        self.members = ClusterMembers(broker.store)
        self.placement = Placement(broker.store, self.members.silence)
        self.own = None if own_store is None else OwnStore(own_store, broker)
        self.server = LinkServer(broker, self.own)
        self.router = Router(broker, self.placement, is_broker=BROKER in roles, own=self.own)
        self.watch = Watch(self.members, self._heard, pulse)
        self.router.forwarding.look = self.watch.look
        self.on_members: Callable[[Sequence[ClusterMember]], None] = lambda members: None
        self._link_port = 0
        self._catalogue = -1
        self._looks = 0
        self._rebalancing = Rebalancing(self.placement, rebalance_after)

    async def open(self, host: str) -> None:
        """Open the link to other nodes and read the list of members."""
        if self.own is not None:
            await self.own.open()
        try:
            self._link_port = await self.server.open(host, self._wanted_port)
            await self.watch.look()
        except BaseException:
            await self.close()
            raise
        self._broker.topics.elsewhere = self.router

    async def enter(self, host: str, http_port: int | None) -> None:
        """Register the node, after its listeners have opened: other nodes may use it from now on."""
        store_id = 1 if self.own is None else self.own.store_id
        await self.watch.begin(
            host,
            http_port or self._link_port,
            self._link_port,
            self._roles,
            store_id,
            self._broker.holder or None,
        )

    async def leave(self) -> None:
        """Leave the cluster before the listeners close: the node's partitions are assigned to others."""
        if await self.watch.end():
            with contextlib.suppress(StoreError, asyncpg.PostgresError):
                await self.placement.reassign()

    async def close(self) -> None:
        await self.server.close()
        self.router.forwarding.close()
        if self.own is not None:
            await self.own.close()

    async def _heard(self, members: Sequence[ClusterMember]) -> None:
        self.router.forwarding.learn(members)
        self.on_members(members)
        catalogue = self._broker.catalogue
        if catalogue != self._catalogue or self.router.is_outdated:
            await self.router.learn_elsewhere()
            self._catalogue = catalogue
        changed = await self.placement.reassign()
        if changed:
            log.warning("partitions of brokers that are gone have others", extra={"partitions": changed})
        await self._rebalancing.look(members)
        self._looks += 1
        if self._looks % TIDY_LOOKS == 0:
            await self.placement.tidy()
