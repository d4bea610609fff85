"""Arguments and replies of the Tribbler service, with the names that Go programs use.

Messages of the second half are sent between Nuncius nodes only; other programs need not know them.
"""

import msgspec

from nuncius.doors.tribbler.storage_messages import RpcStruct


class CreateUserArgs(RpcStruct, frozen=True):
    userid: str = ""


class StatusReply(RpcStruct, frozen=True):
    status: int = 0


class SubscriptionArgs(RpcStruct, frozen=True):
    userid: str = ""
    targetuser: str = ""


class GetSubscriptionsArgs(RpcStruct, frozen=True):
    userid: str = ""


class GetSubscriptionsReply(RpcStruct, frozen=True):
    status: int = 0
    userids: list[str] = msgspec.field(default_factory=list)


class PostTribbleArgs(RpcStruct, frozen=True):
    userid: str = ""
    contents: str = ""


class GetTribblesArgs(RpcStruct, frozen=True):
    userid: str = ""


class Tribble(RpcStruct, frozen=True):
    userid: str = ""
    posted: int = 0
    contents: str = ""


class GetTribblesReply(RpcStruct, frozen=True):
    status: int = 0
    tribbles: list[Tribble] = msgspec.field(default_factory=list)


# Between Nuncius nodes


class PutManyArgs(RpcStruct, frozen=True):
    keys: list[str] = msgspec.field(default_factory=list)
    values: list[str] = msgspec.field(default_factory=list)


class PostManyArgs(RpcStruct, frozen=True):
    userids: list[str] = msgspec.field(default_factory=list)
    contents: list[str] = msgspec.field(default_factory=list)


class PostManyReply(RpcStruct, frozen=True):
    errors: list[str] = msgspec.field(default_factory=list)
    """For each tribble: empty if it is stored, NOT_AT_ONCE, or why it was refused."""


class RecentArgs(RpcStruct, frozen=True):
    is_first: bool = False
    """True to request only the name of the topic."""
    offsets: list[int] = msgspec.field(default_factory=list)


class RecentReply(RpcStruct, frozen=True):
    topic: str = ""
    starts: list[int] = msgspec.field(default_factory=list)
    counts: list[int] = msgspec.field(default_factory=list)
    users: list[str] = msgspec.field(default_factory=list)
    posted: list[int] = msgspec.field(default_factory=list)
    more: bool = False
