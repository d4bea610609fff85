"""Clients with a name, and producers, consumers and brokers with a number and their activity.

Connections are known to their node only: `GET /v1/connections` of each node lists them.
"""

from dataclasses import dataclass
from datetime import datetime

from nuncius.broker.background.actors import BROKER, Actors
from nuncius.broker.observe.facts_cluster import ClusterFactsReader
from nuncius.broker.observe.facts_page import FactsListing, Page, Wish
from nuncius.store.queries import query
from nuncius.store.store import Store

ACTORS = query("facts", "actors")
LAGS = query("facts", "lags")

CLIENTS = FactsListing(
    "nuncius.clients",
    "client_id",
    "client_name",
    {"name": "client_name", "id": "client_id", "mode": "client_mode"},
)
ACTOR_SORTS = {
    "activity": "a.last_active",
    "kind": "a.kind",
    "id": "a.actor_id",
    "topic": "coalesce(p.topic_name, c.topic_name)",
}


@dataclass(frozen=True, slots=True)
class ClientFacts:
    client_id: int
    name: str
    mode: int
    """1 full, 2 read only."""

    @property
    def is_read_only(self) -> bool:
        return self.mode == 2


@dataclass(frozen=True, slots=True)
class ActorFacts:
    kind: str
    """producer, consumer or broker"""
    actor_id: int
    last_active: datetime
    is_active: bool
    topic: str | None
    lag: int | None
    """Of a consumer."""
    state: str
    """active or inactive; of a broker the state of its node."""


class ClientFactsReader:
    def __init__(self, store: Store, actors: Actors, cluster: ClusterFactsReader) -> None:
        self._store = store
        self._cluster = cluster
        self._actors = actors

    async def page(self, wish: Wish | None = None) -> Page[ClientFacts]:
        """List clients. Sorted by name, id or mode."""
        ids, total = await CLIENTS.ids(self._store, wish or Wish())
        rows = await self._store.call("find_clients", ids)
        order = {client_id: n for n, client_id in enumerate(ids)}
        found = sorted((ClientFacts(*row) for row in rows), key=lambda each: order[each.client_id])
        return Page(tuple(found), total)

    async def actors(self, wish: Wish | None = None, *, only_inactive: bool = False) -> Page[ActorFacts]:
        """List producers, consumers and brokers. Sorted by activity (the longest silent first), kind, id or
        topic; searched by topic."""
        wish = wish or Wish("activity")
        wish.check(ACTOR_SORTS)
        rows = await self._store.query(
            ACTORS.format(sort=ACTOR_SORTS[wish.sort], direction=wish.direction),
            self._actors.inactive_after,
            only_inactive,
            wish.search,
            wish.limit,
            wish.offset,
        )
        lags = await self._lags([row[5] for row in rows if row[5] is not None])
        nodes = {each.broker_id: each.state for each in await self._cluster.nodes()}

        def state(kind: str, actor_id: int, *, is_active: bool) -> str:
            if kind == BROKER:
                return nodes.get(actor_id, "unreachable")
            return "active" if is_active else "inactive"

        found = tuple(
            ActorFacts(*(*row[:5], lags.get(row[5]), state(row[0], row[1], is_active=row[3]))) for row in rows
        )
        return Page(found, rows[0][6] if rows else 0)

    async def _lags(self, subscriptions: list[int]) -> dict[int, int]:
        rows = await self._store.query(LAGS, subscriptions)
        return {row[0]: row[1] for row in rows}
