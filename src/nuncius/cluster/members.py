"""The members of the cluster. A table of the common store lists them; every node reads it once a second."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from nuncius.broker.errors import InvalidInput, NotFound
from nuncius.store.store import Store

SILENCE = 5.0  # seconds without a heartbeat after which a node counts as dead


class NoSuchBroker(NotFound):
    pass


@dataclass(frozen=True, slots=True)
class ClusterMember:
    node_id: int
    host: str
    port: int
    link_port: int | None
    roles: tuple[str, ...]
    broker_id: int | None
    store_id: int
    removed: bool
    started_at: datetime
    last_heard: datetime | None
    is_alive: bool
    partitions: int

    @property
    def may_be_given_more(self) -> bool:
        return self.broker_id is not None and self.is_alive and not self.removed


class ClusterMembers:
    def __init__(self, store: Store, silence: float = SILENCE) -> None:
        self._store = store
        self.silence = silence

    async def enter(
        self,
        host: str,
        port: int,
        link_port: int,
        roles: Sequence[str],
        store_id: int = 1,
        holder: int | None = None,
    ) -> int:
        """Register a node that has started and return its number. `holder` is the number of the lock it
        holds: when that is free, the node has ended."""
        rows = await self._store.query(
            "select nuncius.enter_node($1, $2, $3, $4, $5, $6)",
            host,
            port,
            link_port,
            list(roles),
            store_id,
            holder,
        )
        number: int = rows[0][0]
        return number

    async def hear(self, node_id: int) -> bool:
        """Record a heartbeat of a node. Return False if it was forgotten and must enter again."""
        known: bool = (await self._store.query("select nuncius.hear_node($1)", node_id))[0][0]
        return known

    async def leave(self, node_id: int, link_port: int) -> None:
        await self._store.query("select nuncius.leave_node($1, $2)", node_id, link_port)

    async def everybody(self) -> list[ClusterMember]:
        rows = await self._store.query("select * from nuncius.list_nodes($1)", self.silence)
        return [ClusterMember(**{**row, "roles": tuple(row["roles"])}) for row in rows]

    async def brokers(self) -> list[ClusterMember]:
        """Return the brokers that can be given partitions, and those that were."""
        return [member for member in await self.everybody() if member.broker_id is not None]

    async def add_broker(self, port: int, host: str = "127.0.0.1") -> int:
        """Register a broker by its HTTP port. Return its number, from 1."""
        rows = await self._store.query("select nuncius.add_broker($1, $2)", host, port)
        number: int | None = rows[0][0]
        if number is None:
            raise InvalidInput(f"the node at port {port} is no broker")
        return number

    async def remove_broker(self, broker_id: int) -> None:
        """Give a broker's partitions to others. Those in its own store stay, and can be read while it
        runs."""
        rows = await self._store.query("select nuncius.remove_broker($1, $2)", broker_id, self.silence)
        if not rows[0][0]:
            raise NoSuchBroker(f"there is no broker {broker_id}")
