"""The Tribbler port: Go RPC and JSON-RPC, for clients and for the other nodes of the ring."""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence

from nuncius.broker import Broker
from nuncius.broker.observe.counters_model import RingState
from nuncius.doors.tcp import MAX_CONNECTIONS, TcpDoor
from nuncius.doors.tribbler import tribserver
from nuncius.doors.tribbler.rpc_client import RpcClients
from nuncius.doors.tribbler.services import Services
from nuncius.doors.tribbler.session import RpcSession
from nuncius.doors.tribbler.storage_peer import RpcPeer
from nuncius.doors.tribbler.storage_service import StorageService
from nuncius.doors.wire import Session, Wire
from nuncius.ring.settings import RingSettings
from nuncius.ring.storage_node import StorageNode
from nuncius.ring.storage_ring import RingStorage

log = logging.getLogger(__name__)


class NotInRing(Exception):
    """The node could not join its ring."""


class TribblerDoor(TcpDoor):
    name = "tribbler"

    def __init__(
        self,
        broker: Broker,
        ring: RingSettings | None = None,
        max_connections: int = MAX_CONNECTIONS,
        *,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        """`give_up` is called when the node cannot join its ring; `close` then raises the reason."""
        super().__init__(broker, max_connections)
        self._ring = ring
        self._callers = RpcClients()
        self._node = StorageNode(
            broker.store,
            lambda address: RpcPeer(self._callers.at(address), self._id_of),
            ring,
            give_up=self._fail,
            published=lambda topic_id: broker.topics.arrived([topic_id]),
        )
        self._give_up = give_up
        self._entering: asyncio.Task[None] | None = None
        self._opened = False
        self._problem: Exception | None = None

    @property
    def storage(self) -> RingStorage:
        """The storage layer of this node, once it is open."""
        return self._node.storage

    async def open(self, host: str, port: int, *, sockets: Sequence[socket.socket] = ()) -> int:
        self._opened = True
        await self._node.open()
        storage = StorageService(self._node.storage, self._node.handover, self._node.register)
        application = tribserver.build(
            self._node.storage,
            self._callers,
            self._broker.store.query,
            shared=self._ring is None,
            timelines_from=(self._ring or RingSettings()).timelines_from,
        )
        self._services = Services([storage.service(), application])
        bound = await super().open(host, port, sockets=sockets)
        self._broker.counters.ring = self._state
        self._entering = asyncio.ensure_future(self._enter(f"{host}:{bound}"))
        return bound

    async def _enter(self, host_port: str) -> None:
        try:
            await self._node.enter(host_port)
        except Exception as error:
            log.debug("no way into the ring", exc_info=True)
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._problem = error
        self._give_up()

    def _id_of(self, address: str) -> int:
        ring = self._node.storage.ring
        places = () if ring is None else ring.places
        return next((place.node_id for place in places if place.host_port == address), 0)

    def _state(self) -> RingState:
        storage = self._node.storage
        ring = storage.ring
        return RingState(
            storage.me,
            0 if ring is None else ring.version,
            () if ring is None else tuple((place.node_id, place.host_port) for place in ring.places),
            tuple(self._node.leased()),
            storage.cache.bytes,
        )

    def greet(self, wire: Wire) -> Session:
        return RpcSession(self._services, wire)

    async def close(self) -> None:
        if self._entering is not None:
            self._entering.cancel()
            await asyncio.wait((self._entering,))
            self._node.storage.give_up()
        await super().close()
        self._callers.close()
        if self._opened:
            await self._node.close()
        if self._problem is not None:
            raise NotInRing(str(self._problem)) from self._problem
