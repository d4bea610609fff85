"""Packets about queues."""

import msgspec

from nuncius.wire.connection import Packet


class Put(Packet, tag=0x31):
    """Messages for one queue, stored together; or one message for several queues, all or none. `count` is
    the publisher's count of the first message in the first queue, 0 if it does not count."""

    queues: list[str]
    bodies: list[bytes]
    priorities: list[int]
    receivers: list[int] | None = None
    contexts: list[int] | None = None
    headers: list[str | None] | None = None
    count: int = 0


class PutDone(Packet, tag=0x32):
    """Ids of the new messages; the first `skipped` had been put before and have none."""

    ids: list[int]
    skipped: int = 0


class Take(Packet, tag=0x33):
    """`mode`: 1 highest priority first, 2 oldest first. `sender` 0: anybody; `context` 0: any, else only
    the answer to that request. Waits up to `wait_ms` for the first."""

    queue: str
    limit: int = 1
    mode: int = 1
    sender: int = 0
    context: int = 0
    wait_ms: int = 0


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message of a queue; 0 stands for none."""

    message_id: int
    sender_id: int
    receiver_id: int
    context: int
    priority: int
    time: int
    body: bytes
    headers: str | None = None


class Messages(Packet, tag=0x34):
    """Messages that were taken or seen; for Ask, the answer. Empty if none came in time."""

    messages: list[Message]


class Lease(Packet, tag=0x49):
    """Takes like Take, by priority, but the messages stay in the store until they are settled. They are the
    connection's meanwhile; when it ends, or they are released, they come again. A connection has at most
    `max_batch` of them in hand."""

    queue: str
    limit: int = 1
    wait_ms: int = 0


class LeasedMessage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message in hand. `lease` stands for this delivery, `attempts` is how often it was delivered before,
    `origin` the id that stays the same over all deliveries."""

    lease: int
    attempts: int
    origin: int
    message: Message


class Leased(Packet, tag=0x4A):
    """Messages that were leased. Empty if none came in time."""

    messages: list[LeasedMessage]


class Settle(Packet, tag=0x4B):
    """The client is done with these: all of them are gone for good. If the connection does not hold one of
    them, nothing changes."""

    leases: list[int]


class Release(Packet, tag=0x4D):
    """The client could not take these. They come again after a while, or are dead letters after too many
    attempts; without a `reason` they come again at once, and that is not counted."""

    leases: list[int]
    reason: str | None = None


class Ask(Packet, tag=0x35):
    """Puts a request and waits up to `wait_ms` for the answer to it."""

    queue: str
    body: bytes
    priority: int = 5
    headers: str | None = None
    wait_ms: int = 30_000


class Browse(Packet, tag=0x37):
    """Messages of a queue, oldest first, without taking them."""

    queue: str
    after: int = 0
    limit: int = 100


class CreateQueue(Packet, tag=0x39):
    queue: str


class DeleteQueue(Packet, tag=0x3B):
    queue: str


class PurgeQueue(Packet, tag=0x3D):
    """Takes all messages away. Answered with their Number."""

    queue: str


class ListQueues(Packet, tag=0x3F):
    """All queues, or those of the names given."""

    names: list[str] | None = None


class QueueState(msgspec.Struct, array_like=True, frozen=True):
    """A queue: number of messages, arrival of the oldest."""

    queue_id: int
    name: str
    depth: int
    oldest: int | None


class Queues(Packet, tag=0x40):
    queues: list[QueueState]
