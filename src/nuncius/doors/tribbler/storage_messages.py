"""Arguments and replies of the storage service, with the names that Go programs use.

Messages of the second half are sent between Nuncius nodes only; other programs need not know them.
"""

import msgspec

from nuncius.doors.tribbler.gob_codec import Uint


class RpcStruct(msgspec.Struct, rename="pascal", frozen=True):
    """Base of messages. Fields that were not sent are zero."""


class LeaseStruct(RpcStruct, frozen=True):
    granted: bool = False
    valid_seconds: int = 0


class Client(RpcStruct, frozen=True):
    host_port: str = ""
    node_id: Uint = msgspec.field(default=0, name="NodeID")


class GetArgs(RpcStruct, frozen=True):
    """Arguments of Get and GetList in editions after fall 2011: the lease's client is an address."""

    key: str = ""
    want_lease: bool = False
    lease_client: str = ""


class ClientGetArgs(RpcStruct, frozen=True):
    """The same in the edition of fall 2011."""

    key: str = ""
    want_lease: bool = False
    lease_client: Client = Client()


class PlainGetArgs(RpcStruct, frozen=True):
    """The same without a lease request, which a node of any edition understands."""

    key: str = ""


class AnyGetArgs(RpcStruct, frozen=True):
    """The same from a client of any edition."""

    key: str = ""
    want_lease: bool = False
    lease_client: str | Client = ""

    @property
    def address(self) -> str:
        """The address of the client that wants a lease."""
        named = self.lease_client
        return named if isinstance(named, str) else named.host_port


class GetReply(RpcStruct, frozen=True):
    status: int = 0
    value: str = ""
    lease: LeaseStruct = LeaseStruct()


class GetListReply(RpcStruct, frozen=True):
    status: int = 0
    value: list[str] = []
    lease: LeaseStruct = LeaseStruct()


class PutArgs(RpcStruct, frozen=True):
    key: str = ""
    value: str = ""


class PutReply(RpcStruct, frozen=True):
    status: int = 0


class RegisterArgs(RpcStruct, frozen=True):
    client_info: Client = Client()
    more_ids: list[Uint] = msgspec.field(default_factory=list, name="MoreIDs")
    """The other ids of a node with several."""


class RegisterReply(RpcStruct, frozen=True):
    ready: bool = False
    clients: list[Client] = []
    version: int = 0


class RevokeLeaseArgs(RpcStruct, frozen=True):
    key: str = ""


class RevokeLeaseReply(RpcStruct, frozen=True):
    status: int = 0


# Between Nuncius nodes


class GetManyArgs(RpcStruct, frozen=True):
    keys: list[str] = []
    want_lease: list[bool] = []
    lease_client: str = ""


class GetManyReply(RpcStruct, frozen=True):
    replies: list[GetReply] = []


class GetListsReply(RpcStruct, frozen=True):
    replies: list[GetListReply] = []


class PostArgs(RpcStruct, frozen=True):
    key: str = ""
    value: str = ""
    list_key: str = ""
    item: str = ""
    group: str = ""
    body: bytes = b""


class PostReply(RpcStruct, frozen=True):
    length: int = 0


class RingArgs(RpcStruct, frozen=True):
    pass


class RingMessage(RpcStruct, frozen=True):
    version: int = 0
    clients: list[Client] = []


class HashStretch(RpcStruct, frozen=True):
    """A range of hashes."""

    first: Uint = 0
    last: Uint = 0


class Row(RpcStruct, frozen=True):
    hash: Uint = 0
    key: str = ""
    has_value: bool = False
    value: str = ""
    has_items: bool = False
    items: list[str] = []


class TakeArgs(RpcStruct, frozen=True):
    forget: list[HashStretch] = []
    rows: list[Row] = []


class Nothing(RpcStruct, frozen=True):
    pass
