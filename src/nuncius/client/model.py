"""Data that the client returns: messages, receipts, states."""

from datetime import UTC, datetime

import msgspec

_decode_headers = msgspec.json.Decoder(dict[str, str]).decode

Body = bytes | str


class _Content(msgspec.Struct, frozen=True, gc=False):
    """Fields that entries and messages have in common."""

    body: bytes
    time_us: int
    headers_json: str | None

    @property
    def text(self) -> str:
        """The body, decoded as UTF-8."""
        return self.body.decode()

    @property
    def time(self) -> datetime:
        """When the broker stored it, in UTC."""
        return datetime.fromtimestamp(self.time_us / 1_000_000, UTC)

    @property
    def headers(self) -> dict[str, str]:
        """The headers; empty if there are none."""
        return _decode_headers(self.headers_json) if self.headers_json else {}


class Entry(_Content, frozen=True, gc=False):
    """A message of a topic."""

    topic: str
    partition: int
    offset: int
    key: str | None


class Message(_Content, frozen=True, gc=False):
    """A message of a queue. An id of 0 means none."""

    queue: str
    message_id: int
    sender_id: int
    receiver_id: int
    context: int
    priority: int


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Partition and offset of a published message. The offset is None if an earlier attempt stored it."""

    partition: int
    offset: int | None

    @property
    def duplicate(self) -> bool:
        """True if an earlier attempt stored the message."""
        return self.offset is None


class PutReceipt(msgspec.Struct, frozen=True, gc=False):
    """Ids of a stored message, one per queue; empty if an earlier attempt stored it."""

    message_ids: tuple[int, ...]

    @property
    def duplicate(self) -> bool:
        """True if an earlier attempt stored the message."""
        return not self.message_ids


class PartitionState(msgspec.Struct, frozen=True):
    """The offsets of a partition: the first readable one, and the next to be assigned."""

    partition: int
    first_offset: int
    next_offset: int

    @property
    def entries(self) -> int:
        """The number of readable messages."""
        return self.next_offset - self.first_offset


class TopicState(msgspec.Struct, frozen=True):
    """A topic with its retention, its partitions, and the number of its subscriptions."""

    name: str
    retention: str
    retention_seconds: int | None
    retention_bytes: int | None
    created: datetime
    partitions: tuple[PartitionState, ...]
    subscriptions: int

    @property
    def entries(self) -> int:
        """The number of readable messages in all partitions."""
        return sum(p.entries for p in self.partitions)


class QueueState(msgspec.Struct, frozen=True):
    """A queue with its number of messages and the time of the oldest."""

    queue_id: int
    name: str
    depth: int
    oldest: datetime | None


class SubscriptionState(msgspec.Struct, frozen=True):
    """A subscription with its lag, in messages, and the time of its last confirmation."""

    topic: str
    subscriber: str
    holds_retention: bool
    created: datetime
    lag: int
    confirmed: datetime | None


def from_micros(time: int) -> datetime:
    return datetime.fromtimestamp(time / 1_000_000, UTC)
