"""Telesto's packets, declared once: table 3.6 of its report, with the differences of its running code.

There are two dialects: the report describes one, the authors' programs use the other. They share most of this
table; a packet whose id differs has two, a field of one dialect only is marked with `Only`. Encoding,
decoding and the tables in docs/doors/telesto.md follow from this table.

Everything is big-endian and signed. There is no null: 0 stands for "anyone" and "none".
"""

from enum import Enum, IntEnum
from typing import Annotated, ClassVar, NamedTuple

import msgspec


class Dialect(Enum):
    """A framing of packets: the sizes of the length and the method id, and the bytes that the length
    covers."""

    REPORT = "report"  # int16 length of the whole packet, int16 method id
    DEPLOYED = "deployed"  # int16 length of the bytes after it, int8 method id


# Kinds of fields


class Number(NamedTuple):
    """An integer; `code` is its format character in `struct`."""

    name: str
    code: str


class Only(NamedTuple):
    """The field exists in one dialect; in the other it has its default."""

    dialect: Dialect


class Single(NamedTuple):
    """In this dialect the list is one item, without a count."""

    dialect: Dialect


Int8 = Annotated[int, Number("int8", "b")]
Int32 = Annotated[int, Number("int32", "i")]
Int64 = Annotated[int, Number("int64", "q")]
String = str  # int16 length in bytes, UTF-8; a list is an int32 count and its items


class ClientMode(IntEnum):
    FULL = 1
    READ_ONLY = 2


class ReadMode(IntEnum):
    PRIORITY = 1
    TIME = 2


class ErrorType(IntEnum):
    INTERNAL_ERROR = 0
    UNEXPECTED_PACKET = 1
    IO_ERROR = 2
    UNIQUE_CONSTRAINT = 3
    QUEUE_NAME_NOT_UNIQUE = 4
    CLIENT_NOT_EXISTING = 5
    CLIENT_NAME_NOT_UNIQUE = 6
    QUEUE_NOT_EXISTING = 7
    NO_ACTIVE_QUEUES_EXISTING = 8
    NO_QUEUES_EXISTING = 9
    NO_MESSAGES_IN_QUEUE = 10
    NO_MESSAGES_RETRIEVED = 11
    REQUIRED_PARAMETER_MISSING = 12
    CLIENT_MODE_PERMISSION_VIOLATION = 13


# Contents of packets


class Record(msgspec.Struct, gc=False):
    """Fields in the order in which they are sent."""


class Message(Record):
    """A message with all its fields. `time_of_arrival` is in milliseconds since 1970."""

    message_id: Int32
    queue_id: Int32
    sender_id: Int32
    receiver_id: Int32
    context: Int32
    priority: Int8
    time_of_arrival: Int64
    text: String


class Queue(Record):
    """A queue as it is listed."""

    queue_id: Int32
    name: String


# Packets


class Methods(NamedTuple):
    """A packet's number in each dialect."""

    report: int
    deployed: int

    def of(self, dialect: Dialect) -> int:
        return self.report if dialect is Dialect.REPORT else self.deployed


class Packet(Record):
    """The base of every packet: a number set by the client, which the answer repeats."""

    METHODS: ClassVar[Methods]

    packet_id: Int32


class Request(Packet):
    """From client to node."""


class Answer(Packet):
    """From node to client."""


class Ping(Request):
    """Test the connection."""

    METHODS = Methods(0x01, 0x01)


class Pong(Answer):
    """Answer to Ping."""

    METHODS = Methods(0x02, 0x02)


class Success(Answer):
    """The request was carried out; there is no result."""

    METHODS = Methods(0x03, 0x03)


class Error(Answer):
    """The request failed. `error_type` is one of the table of errors."""

    METHODS = Methods(0x05, 0x05)
    error_type: Int8
    details: Annotated[String, Only(Dialect.DEPLOYED)] = ""


class RegisterClient(Request):
    """Register a new client, which becomes the connection's client."""

    METHODS = Methods(0x11, 0x11)
    client_name: String
    mode: Int8


class RegisterClientResponse(Answer):
    METHODS = Methods(0x12, 0x12)
    client_id: Int32


class IdentifyClient(Request):
    """Make an existing client the connection's client."""

    METHODS = Methods(0x13, 0x13)
    client_id: Int32


class IdentifyClientResponse(Answer):
    METHODS = Methods(0x14, 0x14)
    mode: Int8
    client_name: String


class DeleteClient(Request):
    """Delete a client; if none is named, the connection's own."""

    METHODS = Methods(0x15, 0x15)
    client_id: Annotated[int, Number("int32", "i"), Only(Dialect.REPORT)] = 0


class CreateQueue(Request):
    METHODS = Methods(0x21, 0x21)
    queue_name: String


class CreateQueueResponse(Answer):
    METHODS = Methods(0x22, 0x22)
    queue_id: Int32


class DeleteQueue(Request):
    """Delete a queue with its messages."""

    METHODS = Methods(0x23, 0x23)
    queue_id: Int32


class GetQueueId(Request):
    """The `mode` of the report has no meaning for a queue; it is read and ignored."""

    METHODS = Methods(0x25, 0x25)
    mode: Annotated[int, Number("int8", "b"), Only(Dialect.REPORT)]
    queue_name: String


class GetQueueIdResponse(Answer):
    METHODS = Methods(0x26, 0x26)
    queue_id: Int32


class GetQueueName(Request):
    METHODS = Methods(0x27, 0x27)
    queue_id: Int32


class GetQueueNameResponse(Answer):
    METHODS = Methods(0x28, 0x28)
    queue_name: String


class GetQueues(Request):
    """List all queues."""

    METHODS = Methods(0x29, 0x29)


class GetQueuesResponse(Answer):
    METHODS = Methods(0x2A, 0x2A)
    queues: list[Queue]


class GetActiveQueues(Request):
    """List the queues that have messages for this client."""

    METHODS = Methods(0x2B, 0x2B)


class GetActiveQueuesResponse(Answer):
    METHODS = Methods(0x2C, 0x2C)
    queues: list[Queue]


class GetMessages(Request):
    """List the messages of a queue, oldest first, without removing them."""

    METHODS = Methods(0x2D, 0x2D)
    queue_id: Int32


class GetMessagesResponse(Answer):
    METHODS = Methods(0x2E, 0x2E)
    messages: list[Message]


class PutMessage(Request):
    """Put a message into its own queue and into each of the listed ones, or into none."""

    METHODS = Methods(0x31, 0x31)
    message: Message
    queue_ids: list[Int32]


class ReadMessage(Request):
    """Take a message: by priority (1) or the oldest (2), of one sender or of any (0)."""

    METHODS = Methods(0x32, 0x33)
    queue_id: Int32
    sender_id: Int32
    mode: Int8


class ReadMessageResponse(Answer):
    """Answer to ReadMessage and to ReadResponse: always one message."""

    METHODS = Methods(0x33, 0x34)
    messages: Annotated[list[Message], Single(Dialect.DEPLOYED)]


class ReadResponse(Request):
    """Take the answer to a request: a message for this client with that context."""

    METHODS = Methods(0x34, 0x35)
    queue_id: Int32
    context: Int32


PACKETS: tuple[type[Packet], ...] = (
    Ping,
    Pong,
    Success,
    Error,
    RegisterClient,
    RegisterClientResponse,
    IdentifyClient,
    IdentifyClientResponse,
    DeleteClient,
    CreateQueue,
    CreateQueueResponse,
    DeleteQueue,
    GetQueueId,
    GetQueueIdResponse,
    GetQueueName,
    GetQueueNameResponse,
    GetQueues,
    GetQueuesResponse,
    GetActiveQueues,
    GetActiveQueuesResponse,
    GetMessages,
    GetMessagesResponse,
    PutMessage,
    ReadMessage,
    ReadMessageResponse,
    ReadResponse,
)
