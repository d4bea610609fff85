"""Data of a topic, its partitions and its publishers."""

from dataclasses import dataclass
from datetime import datetime

from nuncius.broker.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Topic:
    topic_id: int
    name: str
    partition_ids: tuple[int, ...]  # of partition 1, 2, ...
    stores: tuple[int, ...] | None = None  # of each partition, if some are in another store

    def partition_id(self, partition: int) -> int:
        if not 1 <= partition <= len(self.partition_ids):
            raise InvalidInput(f"topic {self.name!r} has no partition {partition}")
        return self.partition_ids[partition - 1]


@dataclass(frozen=True, slots=True)
class Publisher:
    """A name under which entries are counted, so that an entry sent twice is stored once."""

    publisher_id: int
    name: str


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention of a topic: forever | subscribers | time (seconds) | size (bytes per partition)."""

    mode: str = "forever"
    seconds: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    partition: int
    first_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    retention: Retention
    created_at: datetime
    partitions: tuple[PartitionInfo, ...]
    subscriptions: int
