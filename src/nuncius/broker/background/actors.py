"""Producers and consumers with a number, and when they, and brokers, were last active.

Activity is noted for every message, so it is kept in memory and written to the store every two seconds, in
one statement. An actor that was silent for too long is logged once, by the first node that looks.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from nuncius.broker.background.duties import Duties
from nuncius.broker.errors import NotFound
from nuncius.broker.limits import check_name
from nuncius.broker.names import Names
from nuncius.store.store import Store

log = logging.getLogger(__name__)

PRODUCER, CONSUMER, BROKER = "producer", "consumer", "broker"
MAX_ID = 2**31 - 1
REMEMBERED = 100_000
FLUSH_SECONDS = 2.0
CHECK_SECONDS = 15.0
TIDY_SECONDS = 60.0
MOST_SHOWN = 100  # inactive actors in a line of the log


@dataclass(frozen=True, slots=True)
class NumberedProducer:
    producer_id: int
    topic: str


@dataclass(frozen=True, slots=True)
class NumberedConsumer:
    consumer_id: int
    topic: str
    subscription_id: int


@dataclass(frozen=True, slots=True)
class Activity:
    kind: str
    actor_id: int
    last_active: datetime
    is_active: bool


class NoSuchProducer(NotFound):
    pass


class NoSuchConsumer(NotFound):
    pass


class Actors:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.inactive_after = 300.0
        """Seconds of silence after which an actor is inactive."""
        self.producers: Names[NumberedProducer] = Names(self._find_producer, REMEMBERED)
        self.consumers: Names[NumberedConsumer] = Names(self._find_consumer, REMEMBERED)
        self._active: dict[tuple[str, int], float] = {}  # not written to the store yet

    async def register_producer(self, topic: str) -> NumberedProducer:
        """Register a new producer. Create its topic if it does not exist."""
        check_name("topic", topic)
        rows = await self._store.execute("select nuncius.register_producer($1)", topic)
        producer = NumberedProducer(rows[0][0], topic)
        self.producers.learn(str(producer.producer_id), producer)
        self.touch(PRODUCER, producer.producer_id)
        return producer

    async def register_consumer(self, topic: str) -> int | None:
        """Register a consumer that reads from the topic's beginning. None if there is no such topic."""
        rows = await self._store.execute("select nuncius.register_consumer($1)", topic)
        consumer_id: int | None = rows[0][0]
        if consumer_id is not None:
            self.touch(CONSUMER, consumer_id)
        return consumer_id

    def forget(self) -> None:
        """Drop the cached producers and consumers: their topics or subscriptions may have been deleted."""
        self.producers.forget_all()
        self.consumers.forget_all()

    async def _find_producer(self, name: str) -> NumberedProducer:
        number = _number(name)
        rows = await self._store.query("select topic_name from nuncius.find_producer($1)", number)
        if not rows:
            raise NoSuchProducer(f"there is no producer {name}")
        return NumberedProducer(number, rows[0][0])

    async def _find_consumer(self, name: str) -> NumberedConsumer:
        number = _number(name)
        rows = await self._store.query(
            "select topic_name, subscription_id from nuncius.find_consumer($1)", number
        )
        if not rows:
            raise NoSuchConsumer(f"there is no consumer {name}")
        return NumberedConsumer(number, *rows[0])

    # Health

    def take_on(self, duties: Duties) -> None:
        duties.add("activity", FLUSH_SECONDS, self.flush)
        duties.add("health", CHECK_SECONDS, self.check)
        duties.add("actors", TIDY_SECONDS, self.tidy)

    def touch(self, kind: str, actor_id: int) -> None:
        """Note that an actor is active now."""
        self._active[kind, actor_id] = time.time()

    async def flush(self) -> int:
        """Write the activity since the last flush to the store."""
        active, self._active = self._active, {}
        try:
            await self._store.query("select nuncius.note_brokers()")
            await self._store.query(
                "select nuncius.note_activity($1, $2, $3)",
                [kind for kind, _ in active],
                [actor_id for _, actor_id in active],
                [datetime.fromtimestamp(when, UTC) for when in active.values()],
            )
        except BaseException:
            self._active = {**active, **self._active}
            raise
        return 0  # not worth a log line

    async def check(self) -> int:
        """Log the actors that became inactive since the last check. Return how many."""
        await self.flush()
        rows = await self._store.query(
            "select kind, actor_id from nuncius.note_inactive($1)", self.inactive_after
        )
        silent: dict[str, list[int]] = {}
        for kind, actor_id in rows:
            silent.setdefault(kind, []).append(actor_id)
        for kind, ids in silent.items():
            shown = ",".join(map(str, sorted(ids)[:MOST_SHOWN]))
            log.warning("actors are inactive", extra={"kind": kind, "count": len(ids), "ids": shown})
        return len(rows)

    async def tidy(self) -> int:
        rows = await self._store.query("select nuncius.tidy_actors()")
        removed: int = rows[0][0]
        return removed

    async def health(self, *, only_inactive: bool = False, limit: int = 1000) -> Sequence[Activity]:
        """List the last activity of actors, the longest silent first."""
        await self.flush()
        rows = await self._store.query(
            "select * from nuncius.list_actors($1) where not ($2 and is_active)"
            " order by last_active, kind, actor_id limit $3",
            self.inactive_after,
            only_inactive,
            limit,
        )
        return [Activity(*row) for row in rows]

    async def count_inactive(self) -> int:
        """Return how many actors are inactive."""
        rows = await self._store.query(
            "select count(*) from nuncius.list_actors($1) where not is_active", self.inactive_after
        )
        inactive: int = rows[0][0]
        return inactive

    async def topics(self) -> list[str]:
        """Return the names of all topics, in order of creation."""
        rows = await self._store.query("select topic_name from nuncius.topics order by topic_id")
        return [row[0] for row in rows]

    async def size(self, consumer: NumberedConsumer) -> int:
        """Return how many messages the consumer has not read yet."""
        self.touch(CONSUMER, consumer.consumer_id)
        rows = await self._store.query(
            "select coalesce(sum(next - position), 0)::bigint from nuncius.positions_of($1)",
            [consumer.subscription_id],
        )
        unread: int = rows[0][0]
        return unread

    async def fullness(self, topic: str) -> tuple[dict[int, int], int]:
        """Return the next offset of each partition of a topic, and how many messages the topic holds."""
        rows = await self._store.query("select partition, next, held from nuncius.fullness($1)", topic)
        return {row[0]: row[1] for row in rows}, sum(row[2] for row in rows)

    async def answers(self) -> None:
        """Return when the store has answered."""
        await self._store.query("select 1")


def _number(name: str) -> int:
    number = int(name) if name.isdecimal() else 0
    return number if number <= MAX_ID else 0
