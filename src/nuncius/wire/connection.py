"""Packets about the connection, its client, and errors."""

import msgspec


class Packet(msgspec.Struct, array_like=True, gc=False):
    """The base of every packet: the number that links an answer to its request."""

    request: int


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


class Withdraw(Packet, tag=0x41):
    """A Take, Lease or Fetch that still waits is not wanted any more. Not answered; the withdrawn request
    is."""

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
    NOT_HELD = 10  # this connection does not hold that lease; nothing was changed
