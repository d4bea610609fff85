"""Lists in the order of names, a page at a time. Each page starts after the last name of the previous one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from nuncius.broker.broker import Broker
from nuncius.broker.model import QueueInfo, SubscriptionInfo, TopicInfo
from nuncius.store.queries import query

TOPICS = query("facts", "topics_after")
QUEUES = query("facts", "queues_after")
SUBSCRIPTIONS = query("facts", "subscriptions_after")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """Part of a list. `next` is the name after which the next page starts, or None at the end."""

    rows: Sequence[T]
    next: str | None


class Pages:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def topics(self, after: str, limit: int) -> ListPage[TopicInfo]:
        names, following = await self._names(TOPICS, after, limit)
        return ListPage(await self._broker.topics.find(names), following)

    async def queues(self, after: str, limit: int) -> ListPage[QueueInfo]:
        names, following = await self._names(QUEUES, after, limit)
        return ListPage(await self._broker.queues.info(names), following)

    async def subscriptions(self, topic: str, after: str, limit: int) -> ListPage[SubscriptionInfo]:
        rows = await self._broker.store.query(SUBSCRIPTIONS, topic, after, limit + 1)
        following = rows[limit - 1]["subscriber_name"] if len(rows) > limit else None
        return ListPage([SubscriptionInfo(*row) for row in rows[:limit]], following)

    async def _names(self, sql: str, after: str, limit: int) -> tuple[list[str], str | None]:
        """Return the names of a page, and the name after which the next page starts, if there is one."""
        names = [row[0] for row in await self._broker.store.query(sql, after, limit + 1)]
        return names[:limit], names[limit - 1] if len(names) > limit else None
