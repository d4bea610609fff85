"""The native protocol's packets, declared once.

Telesto's packet idea grown up: every packet has a method id and a request id that the answer repeats. This
table is all there is to know about the payloads: encoding, decoding and the tables in docs/protocol.md
follow from it. A payload is the MessagePack array [method id, field, field, ...] in the order given
here; fields with a default may be missing at the end, so fields can be added.

Odd ids go from client to node, even ids from node to client. Headers are JSON text, an object of strings.
Times are microseconds since 1970. Columns instead of rows: lists of one packet that stand for the same
messages are equally long.
"""

import msgspec


class Packet(msgspec.Struct, array_like=True, gc=False):
    """What every packet has: the number by which answers find their requests."""

    request: int


# Connection


class Hello(Packet, tag=0x01):
    """First packet. `client` is a name to be known by (empty: anonymous); `publisher` the name under which
    messages are counted (empty: they are not), kept for ever if `lasting`."""

    client: str = ""
    mode: int = 1
    publisher: str = ""
    lasting: bool = False


class Welcome(Packet, tag=0x02):
    """Answer to Hello. `client_id` is 0 for an anonymous client."""

    client_id: int
    max_body: int
    max_batch: int
    version: str


class Ping(Packet, tag=0x03):
    """Are you there?"""


class Pong(Packet, tag=0x04):
    """Yes."""


class Error(Packet, tag=0x06):
    """The request was refused, or its outcome is unknown; `code` is one of the table of errors."""

    code: int
    text: str


class Done(Packet, tag=0x08):
    """The request was carried out and there is nothing more to say."""


class Number(Packet, tag=0x0A):
    """The request was carried out; what it counted."""

    value: int


class Report(Packet, tag=0x0C):
    """Answer to Status: a JSON object."""

    json: str


class Status(Packet, tag=0x0D):
    """How are you?"""


# Topics


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


# Subscriptions


class Subscribe(Packet, tag=0x21):
    """`start`: latest or earliest, for a new subscription."""

    topic: str
    subscriber: str
    start: str = "latest"
    holds_retention: bool = False


class Subscribed(Packet, tag=0x22):
    """`created`: there was none before."""

    created: bool


class Unsubscribe(Packet, tag=0x23):
    topic: str
    subscriber: str


class Attach(Packet, tag=0x25):
    """Have a subscription delivered, from its first entry that is not confirmed, by Entries packets with this
    request id. The node sends no more than `credit` entries until Credit allows more. Answered with Done
    when delivery begins and with Error when it ends by itself."""

    topic: str
    subscriber: str
    credit: int


class Credit(Packet, tag=0x27):
    """So many more entries may be delivered to the Attach of this request id. Not answered."""

    entries: int


class Detach(Packet, tag=0x29):
    """No more deliveries to the Attach of request id `attached`."""

    attached: int


class Confirm(Packet, tag=0x2B):
    """Everything below the position of a partition has arrived."""

    topic: str
    subscriber: str
    partition: int
    position: int


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


# Queues


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
    """A message of a queue; 0 stands for nobody and none."""

    message_id: int
    sender_id: int
    receiver_id: int
    context: int
    priority: int
    time: int
    body: bytes
    headers: str | None = None


class Messages(Packet, tag=0x34):
    """What was taken or seen; for Ask, the answer. Empty when there was nothing in time."""

    messages: list[Message]


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


class Withdraw(Packet, tag=0x41):
    """A Take or Fetch that still waits is not wanted any more. Not answered; the withdrawn request is."""

    waiting: int


class FindClient(Packet, tag=0x43):
    """The id of the client of that name, as a Number."""

    name: str


class Identify(Packet, tag=0x47):
    """Take a name after all, if Hello gave none. Answered with the Number of the client."""

    client: str
    mode: int = 1


class Forget(Packet, tag=0x45):
    """Delete this connection's client. Messages for it stay."""


REQUESTS: tuple[type[Packet], ...] = (
    Hello,
    Ping,
    Status,
    Publish,
    Fetch,
    CreateTopic,
    DeleteTopic,
    PurgeTopic,
    SetRetention,
    ListTopics,
    Subscribe,
    Unsubscribe,
    Attach,
    Credit,
    Detach,
    Confirm,
    ListSubscriptions,
    LastCount,
    Put,
    Take,
    Ask,
    Browse,
    CreateQueue,
    DeleteQueue,
    PurgeQueue,
    ListQueues,
    Withdraw,
    FindClient,
    Identify,
    Forget,
)
ANSWERS: tuple[type[Packet], ...] = (
    Welcome,
    Pong,
    Error,
    Done,
    Number,
    Report,
    Published,
    Entries,
    Topics,
    Subscribed,
    Subscriptions,
    PutDone,
    Messages,
    Queues,
)


class ErrorCode:
    """Codes of the Error packet."""

    INTERNAL = 0  # a fault of the node; the text has a number to look for in its log
    PROTOCOL = 1  # the packet was not understood, or not expected here
    INVALID = 2  # a name, a number or a size is not allowed
    NOT_FOUND = 3  # there is no such queue, topic, subscription or client
    EXISTS = 4  # the name is taken
    NOT_ALLOWED = 5  # a read-only client
    UNAVAILABLE = 6  # the store does not answer; nothing was stored
    UNKNOWN = 7  # the outcome is unknown
    FAILED = 8  # the store refused; nothing was stored
    CLOSING = 9  # the node is shutting down
