"""`StorageRPC`: the storage layer of a node for clients and for other nodes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from nuncius.doors.tribbler.services import Method, Service
from nuncius.doors.tribbler.storage_messages import (
    AnyGetArgs,
    Client,
    GetListReply,
    GetListsReply,
    GetManyArgs,
    GetManyReply,
    GetReply,
    LeaseStruct,
    Nothing,
    PostArgs,
    PostReply,
    PutArgs,
    PutReply,
    RegisterArgs,
    RegisterReply,
    RevokeLeaseArgs,
    RevokeLeaseReply,
    RingArgs,
    RingMessage,
    TakeArgs,
)
from nuncius.ring.handover import Handover
from nuncius.ring.peers import APPEND, POST, PUT, RAISE, REMOVE, FoundKey, KeyRow, Mention, Registered
from nuncius.ring.ring import SIZE, HashRange, NodePlace, Ring
from nuncius.ring.storage import KeyRefused, KeyStatus
from nuncius.ring.storage_ring import RingStorage

NAME = "StorageRPC"
MAX_ANSWER = 32 << 20  # characters


class StorageService:
    def __init__(
        self, storage: RingStorage, handover: Handover, register: Callable[[Sequence[NodePlace]], Registered]
    ) -> None:
        self._storage = storage
        self._handover = handover
        self._register = register

    def service(self) -> Service:
        return Service(
            NAME,
            {
                "Get": Method(AnyGetArgs, self.get, reads=True),
                "GetList": Method(AnyGetArgs, self.get_list, reads=True),
                "Put": Method(PutArgs, self.change(PUT)),
                "AppendToList": Method(PutArgs, self.change(APPEND)),
                "RemoveFromList": Method(PutArgs, self.change(REMOVE)),
                "Register": Method(RegisterArgs, self.register),
                "RevokeLease": Method(RevokeLeaseArgs, self.revoke),
                "GetMany": Method(GetManyArgs, self.get_many, reads=True),
                "GetLists": Method(GetManyArgs, self.get_lists, reads=True),
                "Raise": Method(PutArgs, self.change(RAISE)),
                "Post": Method(PostArgs, self.post),
                "Ring": Method(RingArgs, self.ring),
                "Join": Method(RegisterArgs, self.join),
                "HandOver": Method(RingMessage, self.hand_over),
                "Take": Method(TakeArgs, self.take),
            },
        )

    async def get(self, asked: AnyGetArgs) -> GetReply:
        return GetReply(*_fields(await self._read_one(False, asked), ""))

    async def get_list(self, asked: AnyGetArgs) -> GetListReply:
        return GetListReply(*_fields(await self._read_one(True, asked), []))

    async def _read_one(self, lists: bool, asked: AnyGetArgs) -> FoundKey:
        return (await self._storage.read_for(lists, (asked.key,), (asked.want_lease,), asked.address))[0]

    async def get_many(self, asked: GetManyArgs) -> GetManyReply:
        return GetManyReply([GetReply(*_fields(found, "")) for found in await self._read(False, asked)])

    async def get_lists(self, asked: GetManyArgs) -> GetListsReply:
        return GetListsReply([GetListReply(*_fields(found, [])) for found in await self._read(True, asked)])

    async def _read(self, lists: bool, asked: GetManyArgs) -> Sequence[FoundKey]:
        wants = asked.want_lease or [False] * len(asked.keys)
        if len(wants) != len(asked.keys):
            raise KeyRefused("there must be as many wishes as keys")
        return _fitting(await self._storage.read_for(lists, asked.keys, wants, asked.lease_client))

    def change(self, kind: int) -> Callable[[PutArgs], Awaitable[PutReply]]:
        async def change(asked: PutArgs) -> PutReply:
            try:
                return PutReply(await self._storage.write(kind, asked.key, asked.value))
            except KeyRefused:
                return PutReply(KeyStatus.PUT_FAILED)

        return change

    async def post(self, asked: PostArgs) -> PostReply:
        mention = Mention(asked.list_key, asked.item, asked.group, asked.body)
        return PostReply(await self._storage.write(POST, asked.key, asked.value, mention))

    async def register(self, asked: RegisterArgs) -> RegisterReply:
        answer = self._register(places_of(asked))
        return RegisterReply(answer.ready, clients_of(answer.places), answer.version if answer.ready else 0)

    async def revoke(self, asked: RevokeLeaseArgs) -> RevokeLeaseReply:
        self._storage.revoked(asked.key)
        return RevokeLeaseReply(KeyStatus.OK)

    async def ring(self, _: RingArgs) -> RingMessage:
        ring = self._storage.ring
        return RingMessage() if ring is None else RingMessage(ring.version, clients_of(ring.places))

    async def join(self, asked: RegisterArgs) -> RingMessage:
        ring = await self._handover.join(places_of(asked))
        return RingMessage(ring.version, clients_of(ring.places))

    async def hand_over(self, asked: RingMessage) -> Nothing:
        await self._handover.change(ring_of(asked))
        return Nothing()

    async def take(self, asked: TakeArgs) -> Nothing:
        rows = [
            KeyRow(
                row.hash, row.key, row.value if row.has_value else None, row.items if row.has_items else None
            )
            for row in asked.rows
        ]
        await self._handover.take([HashRange(each.first, each.last) for each in asked.forget], rows)
        return Nothing()


def _fitting(found: Sequence[FoundKey]) -> Sequence[FoundKey]:
    """Return the first values, as many as fit into one answer; the caller asks again for the rest."""
    size = 0
    for n, each in enumerate(found):
        size += len(each.value) if isinstance(each.value, str) else sum(map(len, each.value or ()))
        if n and size > MAX_ANSWER:
            return found[:n]
    return found


def _fields(found: FoundKey, nothing: Any) -> tuple[int, Any, LeaseStruct]:
    """Return the fields of a reply."""
    if not isinstance(found.value, type(nothing)):
        return KeyStatus.KEY_NOT_FOUND, nothing, LeaseStruct()
    lease = LeaseStruct(True, found.lease_seconds) if found.lease_seconds else LeaseStruct()
    return KeyStatus.OK, found.value, lease


def places_of(asked: RegisterArgs) -> list[NodePlace]:
    node = asked.client_info
    if not all(0 <= node_id < SIZE for node_id in (node.node_id, *asked.more_ids)):
        raise KeyRefused("an id of a node has 32 bits")
    return [NodePlace(node_id, node.host_port) for node_id in (node.node_id, *asked.more_ids)]


def clients_of(places: Sequence[NodePlace]) -> list[Client]:
    return [Client(place.host_port, place.node_id) for place in places]


def ring_of(message: RingMessage) -> Ring:
    if not message.clients:
        raise KeyRefused("a ring has at least one node")
    return Ring([NodePlace(each.node_id, each.host_port) for each in message.clients], message.version)
