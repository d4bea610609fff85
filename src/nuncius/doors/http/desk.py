"""Services that every endpoint uses."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from nuncius.broker import Broker, future
from nuncius.broker.model import Placed, Publisher
from nuncius.broker.observe.facts import Facts
from nuncius.broker.observe.paging import Pages
from nuncius.cluster.members import ClusterMembers
from nuncius.doors.http import identity
from nuncius.doors.http.queue_report.growth import TopicGrowth
from nuncius.doors.http.watching.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Desk:
    broker: Broker
    members: ClusterMembers
    growth: TopicGrowth
    metrics: Metrics
    facts: Facts
    pages: Pages
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def max_request(self) -> int:
        """The largest request in bytes: a message in JSON takes more bytes than its body has."""
        return 4 * self.broker.limits.max_body + (1 << 20)

    async def identity(self, key: str, content: Sequence[object], *whose: str) -> Publisher:
        """Return the publisher that stores this content once, however often it is sent with this key."""
        name = identity.publisher_name(*whose, key)
        return await self.broker.publishers.claim(name, identity.fingerprint(*content))

    async def publish(
        self,
        topic: str,
        bodies: Sequence[bytes],
        *,
        keys: Sequence[str | None] | None = None,
        headers: Sequence[str | None] | None = None,
        partition: int | None = None,
        publisher: Publisher | None = None,
    ) -> Placed:
        """Publish messages together; then let the topic grow if it has too many."""
        published, done = future.new()
        self.broker.topics.publish_soon(
            topic,
            bodies,
            done,
            keys=keys,
            headers=headers,
            partition=partition,
            publisher=publisher,
            count=0 if publisher is None else 1,
        )
        placed: Placed = await published
        if self.growth.is_due(topic, placed, len(bodies)):
            await self.growth.grow(topic)
        return placed
