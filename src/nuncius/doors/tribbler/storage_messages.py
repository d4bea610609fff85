"""Arguments and replies of the storage service, with the names that Go programs use.

Messages of the second half are sent between Nuncius nodes only; other programs need not know them.
"""

import msgspec

from nuncius.doors.tribbler.gob_codec import Uint


class Message(msgspec.Struct, rename="pascal", frozen=True):
    """Base of messages. Fields that were not sent are zero."""


class LeaseStruct(Message, frozen=True):
    granted: bool = False
    valid_seconds: int = 0


class Client(Message, frozen=True):
    host_port: str = ""
    node_id: Uint = msgspec.field(default=0, name="NodeID")


class GetArgs(Message, frozen=True):
    """Arguments of Get and GetList in editions after fall 2011: the lease's client is an address."""

    key: str = ""
    want_lease: bool = False
    lease_client: str = ""


class ClientGetArgs(Message, frozen=True):
    """The same in the edition of fall 2011."""

    key: str = ""
    want_lease: bool = False
    lease_client: Client = Client()


class PlainGetArgs(Message, frozen=True):
    """The same without a lease request, which a node of any edition understands."""

    key: str = ""


class AnyGetArgs(Message, frozen=True):
    """The same from a client of any edition."""

    key: str = ""
    want_lease: bool = False
    lease_client: str | Client = ""

    @property
    def address(self) -> str:
        """The address of the client that wants a lease."""
        named = self.lease_client
        return named if isinstance(named, str) else named.host_port


class GetReply(Message, frozen=True):
    status: int = 0
    value: str = ""
    lease: LeaseStruct = LeaseStruct()


class GetListReply(Message, frozen=True):
    status: int = 0
    value: list[str] = []
    lease: LeaseStruct = LeaseStruct()


class PutArgs(Message, frozen=True):
    key: str = ""
    value: str = ""


class PutReply(Message, frozen=True):
    status: int = 0


class RegisterArgs(Message, frozen=True):
    client_info: Client = Client()
    more_ids: list[Uint] = msgspec.field(default_factory=list, name="MoreIDs")
    """The other ids of a node with several."""


class RegisterReply(Message, frozen=True):
    ready: bool = False
    clients: list[Client] = []
    version: int = 0


class RevokeLeaseArgs(Message, frozen=True):
    key: str = ""


class RevokeLeaseReply(Message, frozen=True):
    status: int = 0


# Between Nuncius nodes


class GetManyArgs(Message, frozen=True):
    keys: list[str] = []
    want_lease: list[bool] = []
    lease_client: str = ""


class GetManyReply(Message, frozen=True):
    replies: list[GetReply] = []


class GetListsReply(Message, frozen=True):
    replies: list[GetListReply] = []


class PostArgs(Message, frozen=True):
    key: str = ""
    value: str = ""
    list_key: str = ""
    item: str = ""
    group: str = ""
    body: bytes = b""


class PostReply(Message, frozen=True):
    length: int = 0


class RingArgs(Message, frozen=True):
    pass


class RingMessage(Message, frozen=True):
    version: int = 0
    clients: list[Client] = []


class Stretch(Message, frozen=True):
    """A range of hashes."""

    first: Uint = 0
    last: Uint = 0


class Row(Message, frozen=True):
    hash: Uint = 0
    key: str = ""
    has_value: bool = False
    value: str = ""
    has_items: bool = False
    items: list[str] = []


class TakeArgs(Message, frozen=True):
    forget: list[Stretch] = []
    rows: list[Row] = []


class Nothing(Message, frozen=True):
    pass
