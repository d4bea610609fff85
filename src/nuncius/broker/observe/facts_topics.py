"""Contents of topics: partitions, and entries by offset, by time and at the end."""

from dataclasses import dataclass
from datetime import UTC, datetime

from nuncius.broker.errors import InvalidInput, NoSuchTopic, NotFound
from nuncius.broker.observe.facts_page import MOST_ROWS, FactsListing, Page, Wish, headers_of
from nuncius.broker.topics.topic import Retention, Topic
from nuncius.broker.topics.topics import Topics
from nuncius.store.store import Store

PREVIEW = 200  # bytes

TOPICS = FactsListing(
    "nuncius.topics",
    "topic_id",
    "topic_name",
    {
        "name": "topic_name",
        "entries": "nuncius.entries_of(topic_id)",
        "partitions": "partition_count",
        "created": "created_at",
    },
)


class NoSuchEntry(NotFound):
    pass


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    partition: int
    partition_id: int
    store_id: int
    broker_id: int | None
    first: int
    next: int
    bytes: int
    """An estimate, from the entries published last."""

    @property
    def entries(self) -> int:
        return self.next - self.first


@dataclass(frozen=True, slots=True)
class TopicFacts:
    topic_id: int
    name: str
    retention: Retention
    created_at: datetime
    subscriptions: int
    latest: datetime | None
    partitions: tuple[PartitionFacts, ...]

    @property
    def entries(self) -> int:
        return sum(each.entries for each in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.partitions)

    @property
    def published(self) -> int:
        """Return how many entries were published since the topic was created."""
        return sum(each.next for each in self.partitions)


@dataclass(frozen=True, slots=True)
class EntryFacts:
    partition: int
    offset: int
    arrived: datetime
    key: str | None
    headers: dict[str, str]
    publisher: str | None
    size: int
    preview: bytes
    """The first bytes, or all of them if the whole entry was requested."""


class TopicFactsReader:
    def __init__(self, store: Store, topics: Topics) -> None:
        self._store = store
        self._topics = topics

    async def page(self, wish: Wish | None = None) -> Page[TopicFacts]:
        """List topics. Sorted by name, entries, partitions or created."""
        ids, total = await TOPICS.ids(self._store, wish or Wish())
        return Page(await self._facts(ids), total)

    async def fullest(self, most: int) -> list[tuple[str | None, int, int]]:
        """Return name, entries held and entries ever published of the fullest topics, and a sum of all others
        without a name."""
        rows = await self._store.call("fullest_topics", most)
        return [(row[0], row[1], row[2]) for row in rows]

    async def one(self, name: str) -> TopicFacts:
        topic = await self._topics.existing(name)
        found = await self._facts([topic.topic_id])
        if not found:
            raise NoSuchTopic(f"there is no topic {name!r}")
        return found[0]

    async def _facts(self, ids: list[int]) -> tuple[TopicFacts, ...]:
        rows = await self._store.call("facts_of_topics", ids)
        return tuple(
            TopicFacts(
                row["topic_id"],
                row["topic_name"],
                Retention(row["retention"], row["retention_seconds"], row["retention_bytes"]),
                row["created_at"],
                row["subscriptions"],
                row["latest"],
                tuple(
                    PartitionFacts(n, *partition)
                    for n, partition in enumerate(
                        zip(
                            *(
                                row[name]
                                for name in ("partition_ids", "stores", "brokers", "firsts", "nexts", "sizes")
                            ),
                            strict=True,
                        ),
                        1,
                    )
                ),
            )
            for row in rows
        )

    async def entries(self, topic: str, partition: int, offset: int, limit: int = 50) -> list[EntryFacts]:
        """List entries from an offset on."""
        found = await self._topics.existing(topic)
        return await self._peek(found, partition, offset, limit, PREVIEW)

    async def entries_since(
        self, topic: str, partition: int, time: datetime, limit: int = 50
    ) -> list[EntryFacts]:
        """List entries from the first one that arrived at that time or later."""
        found = await self._topics.existing(topic)
        rows = await self._store.call("offset_at", found.partition_id(partition), time)
        return await self._peek(found, partition, rows[0][0], limit, PREVIEW)

    async def tail(self, topic: str, limit: int = 50) -> list[EntryFacts]:
        """List the last entries of all partitions, the latest last."""
        facts = await self.one(topic)
        found = await self._topics.existing(topic)
        entries = [
            entry
            for each in facts.partitions
            for entry in await self._peek(
                found, each.partition, max(each.first, each.next - limit), limit, PREVIEW
            )
        ]
        entries.sort(key=lambda entry: (entry.arrived, entry.partition, entry.offset))
        return entries[-limit:]

    async def entry(self, topic: str, partition: int, offset: int) -> EntryFacts:
        """Return one entry with its whole body."""
        found = await self._topics.existing(topic)
        entries = await self._peek(found, partition, offset, 1, 2**31 - 1)
        if not entries or entries[0].offset != offset:
            raise NoSuchEntry(f"there is no entry {offset} in partition {partition} of {topic!r}")
        return entries[0]

    async def _peek(
        self, topic: Topic, partition: int, offset: int, limit: int, preview: int
    ) -> list[EntryFacts]:
        if not 1 <= limit <= MOST_ROWS:
            raise InvalidInput(f"a page has 1 to {MOST_ROWS} rows")
        partition_id = topic.partition_id(partition)
        if topic.stores is not None and topic.stores[partition - 1] != 1:
            return await self._fetch(topic, partition, offset, limit, preview)
        rows = await self._store.call("peek_entries", partition_id, offset, limit, preview)
        return [
            EntryFacts(
                partition,
                row["entry_offset"],
                row["time_of_arrival"],
                row["key"],
                headers_of(row["headers"]),
                row["publisher"],
                row["size"],
                row["preview"],
            )
            for row in rows
        ]

    async def _fetch(
        self, topic: Topic, partition: int, offset: int, limit: int, preview: int
    ) -> list[EntryFacts]:
        """Fetch entries in another store through its broker."""
        entries = await self._topics.fetch(topic, partition, offset, limit)
        if entries is None:
            return []
        return [
            EntryFacts(
                partition,
                entries.first_offset + n,
                datetime.fromtimestamp(entries.times[n] / 1e6, UTC),
                entries.keys[n] if entries.keys else None,
                headers_of(entries.headers[n] if entries.headers else None),
                None,
                len(body),
                body[:preview],
            )
            for n, body in enumerate(entries.bodies)
        ]
