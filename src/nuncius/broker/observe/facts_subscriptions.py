"""Positions and lag of subscriptions, and failed deliveries."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from nuncius.broker.broker import Failure
from nuncius.broker.observe.facts_page import FactsListing, Page, Wish
from nuncius.store.queries import query
from nuncius.store.store import Store

ACTIVE_CONSUMERS = query("facts", "active_consumers")

SUBSCRIPTIONS = FactsListing(
    f"({query('facts', 'named_subscriptions')}) s",
    "subscription_id",
    "names",
    {
        "name": "names",
        "subscriber": "subscriber_name",
        "lag": "nuncius.lag_of(subscription_id)",
        "created": "created_at",
    },
)
MOST_FAILURES = 1000


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    subscription_id: int
    topic: str
    subscriber: str
    holds_retention: bool
    is_durable: bool
    """False: it ends with its connection."""
    created_at: datetime
    confirmed_at: datetime | None
    positions: tuple[int, ...]
    """The next offset to read, of each partition."""
    nexts: tuple[int, ...]
    """The next offset to be published, of each partition."""
    failures: int
    attempts: int | None
    """Of the entry with the most failed deliveries."""
    last_failure: datetime | None
    reason: str | None
    members: int
    """Of a group."""
    consumer_id: int | None
    """Of a consumer with a number, over HTTP."""
    is_consuming: bool
    """True if that consumer is active."""

    @property
    def lag(self) -> int:
        return sum(self.nexts) - sum(self.positions)


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """A queue or topic of dead letters, and the one they came from."""

    kind: str
    """queue or topic"""
    name: str
    origin: str
    count: int
    queue_id: int | None


class SubscriptionFactsReader:
    def __init__(self, store: Store, inactive_after: Callable[[], float]) -> None:
        self._store = store
        self._inactive_after = inactive_after

    async def page(self, wish: Wish | None = None) -> Page[SubscriptionFacts]:
        """List subscriptions. Sorted by name (of the topic), subscriber, lag or created."""
        ids, total = await SUBSCRIPTIONS.ids(self._store, wish or Wish())
        return Page(await self._facts(ids), total)

    async def one(self, subscription_id: int) -> SubscriptionFacts | None:
        found = await self._facts([subscription_id])
        return found[0] if found else None

    async def _facts(self, ids: list[int]) -> tuple[SubscriptionFacts, ...]:
        rows = await self._store.call("facts_of_subscriptions", ids)
        active = await self._active([row["consumer_id"] for row in rows if row["consumer_id"] is not None])
        return tuple(
            SubscriptionFacts(
                *(
                    *row[:7],
                    tuple(row["positions"]),
                    tuple(row["nexts"]),
                    *row[9:],
                    row["consumer_id"] in active,
                ),
            )
            for row in rows
        )

    async def _active(self, consumers: list[int]) -> set[int]:
        """Return the active ones of these HTTP consumers."""
        if not consumers:
            return set()
        rows = await self._store.query(
            ACTIVE_CONSUMERS,
            self._inactive_after(),
            consumers,
        )
        return {row[0] for row in rows}

    async def awaiting(self, limit: int = 100) -> tuple[Failure, ...]:
        """List failed deliveries awaiting redelivery, the latest first. The overview counts them."""
        rows = await self._store.call("list_awaiting", min(limit, MOST_FAILURES))
        return tuple(Failure(*row) for row in rows)

    async def dead_letters(self) -> tuple[DeadLetters, ...]:
        """List the queues and topics of dead letters. A queue is counted up to a bound."""
        rows = await self._store.call("places_of_the_dead")
        return tuple(DeadLetters(*row) for row in rows)
