"""Packets about topics and subscriptions."""

import msgspec

from nuncius.wire.connection import Packet


class Publish(Packet, tag=0x11):
    """Entries for one topic, stored together. `count` is the publisher's count of the first one, 0 if it
    does not count; `partition` 0 leaves the choice to the node."""

    topic: str
    bodies: list[bytes]
    keys: list[str | None] | None = None
    headers: list[str | None] | None = None
    partition: int = 0
    count: int = 0


class Published(Packet, tag=0x12):
    """Offsets go up by one from `offset`; the first `skipped` entries had been sent before and got none. If
    they went to several partitions, `scattered` has (partition, offset) an entry, offset -1 if sent
    before."""

    partition: int
    offset: int
    skipped: int = 0
    scattered: list[tuple[int, int]] | None = None


class Fetch(Packet, tag=0x13):
    """Entries from a position on; waits up to `wait_ms` for the first."""

    topic: str
    partition: int
    position: int
    limit: int
    wait_ms: int = 0


class Entries(Packet, tag=0x14):
    """Consecutive entries of a partition, `first` being the offset of the first; none if there are none.
    Unasked, with the request id of an Attach, it delivers to a subscription."""

    partition: int
    first: int
    times: list[int]
    bodies: list[bytes]
    keys: list[str | None] | None = None
    headers: list[str | None] | None = None


class CreateTopic(Packet, tag=0x15):
    topic: str
    partitions: int = 1


class DeleteTopic(Packet, tag=0x17):
    topic: str


class PurgeTopic(Packet, tag=0x19):
    """Makes all entries unreadable. Answered with their Number."""

    topic: str


class SetRetention(Packet, tag=0x1B):
    """`mode`: forever, subscribers, time (with seconds) or size (with bytes a partition)."""

    topic: str
    mode: str
    seconds: int | None = None
    bytes: int | None = None


class ListTopics(Packet, tag=0x1D):
    """All topics, or those of the names given."""

    names: list[str] | None = None


class TopicState(msgspec.Struct, array_like=True, frozen=True):
    """A topic: (first offset, next offset) a partition."""

    name: str
    retention: str
    seconds: int | None
    bytes: int | None
    created: int
    partitions: list[tuple[int, int]]
    subscriptions: int


class Topics(Packet, tag=0x1E):
    topics: list[TopicState]


class GrowTopic(Packet, tag=0x1F):
    """Adds partitions until there are so many; there are never fewer afterwards."""

    topic: str
    partitions: int


class Subscribe(Packet, tag=0x21):
    """`start`: latest or earliest, for a new subscription."""

    topic: str
    subscriber: str
    start: str = "latest"
    holds_retention: bool = False


class Subscribed(Packet, tag=0x22):
    """`created`: there was none before. `subscription` is the number that Attach and Confirm know it by."""

    created: bool
    subscription: int = 0


class Unsubscribe(Packet, tag=0x23):
    topic: str
    subscriber: str


class Attach(Packet, tag=0x25):
    """Have a subscription delivered, from its first entry that is not confirmed, by Entries packets with this
    request id. The node sends no more than `credit` entries until Credit allows more. Answered with Done
    when delivery begins and with Error when it ends by itself. With the number of a `subscription`, none but
    that one will do."""

    topic: str
    subscriber: str
    credit: int
    subscription: int = 0


class Credit(Packet, tag=0x27):
    """So many more entries may be delivered to the Attach of this request id. Not answered."""

    entries: int


class Detach(Packet, tag=0x29):
    """No more deliveries to the Attach of request id `attached`."""

    attached: int


class Confirm(Packet, tag=0x2B):
    """Everything below the position of a partition has arrived. `subscription` as in Attach."""

    topic: str
    subscriber: str
    partition: int
    position: int
    subscription: int = 0


class ListSubscriptions(Packet, tag=0x2D):
    topic: str | None = None
    subscriber: str | None = None


class SubscriptionState(msgspec.Struct, array_like=True, frozen=True):
    topic: str
    subscriber: str
    holds_retention: bool
    created: int
    lag: int
    confirmed: int | None


class Subscriptions(Packet, tag=0x2E):
    subscriptions: list[SubscriptionState]


class LastCount(Packet, tag=0x2F):
    """How far this connection's publisher has come in a topic or a queue. Answered with a Number."""

    kind: str
    name: str
