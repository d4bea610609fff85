"""The members of the cluster. A table of the common store lists them; every node reads it once a second."""

from collections.abc import Sequence

from nuncius.broker.errors import InvalidInput, NotFound
from nuncius.broker.observe.facts_cluster import SILENCE, NodeFacts
from nuncius.store.store import Store


class NoSuchBroker(NotFound):
    pass


ClusterMember = NodeFacts
"""A node as the others see it."""


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
        rows = await self._store.call("enter_node", host, port, link_port, list(roles), store_id, holder)
        number: int = rows[0][0]
        return number

    async def hear(self, node_id: int) -> bool:
        """Record a heartbeat of a node. Return False if it was forgotten and must enter again."""
        known: bool = (await self._store.call("hear_node", node_id))[0][0]
        return known

    async def leave(self, node_id: int, link_port: int) -> None:
        await self._store.call("leave_node", node_id, link_port)

    async def all(self) -> list[ClusterMember]:
        rows = await self._store.call("list_nodes", self.silence)
        return [ClusterMember(**{**row, "roles": tuple(row["roles"])}) for row in rows]

    async def brokers(self) -> list[ClusterMember]:
        """Return the brokers that can be given partitions, and those that were."""
        return [member for member in await self.all() if member.broker_id is not None]

    async def add_broker(self, port: int, host: str = "127.0.0.1") -> int:
        """Register a broker by its HTTP port. Return its number, from 1."""
        rows = await self._store.call("add_broker", host, port)
        number: int | None = rows[0][0]
        if number is None:
            raise InvalidInput(f"the node at port {port} is no broker")
        return number

    async def remove_broker(self, broker_id: int) -> None:
        """Give a broker's partitions to others. Those in its own store stay, and can be read while it
        runs."""
        rows = await self._store.call("remove_broker", broker_id, self.silence)
        if not rows[0][0]:
            raise NoSuchBroker(f"there is no broker {broker_id}")
