"""Call another node of the ring by Go RPC.

The methods that Go programs know are called in their form, so that a node may be a Go program. Only reads of
many keys and posts have methods of our own; a node without them gets the plain calls.

Editions of the course differ in how a lease request names the client. A node's edition is unknown (another
node may have reported it), so one form is tried first, and the other if the node refuses that.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from nuncius.doors.tribbler.rpc_client import RpcClient, RpcError
from nuncius.doors.tribbler.storage_messages import (
    Client,
    ClientGetArgs,
    GetArgs,
    GetListReply,
    GetListsReply,
    GetManyArgs,
    GetManyReply,
    GetReply,
    HashStretch,
    LeaseStruct,
    Nothing,
    PlainGetArgs,
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
    Row,
    TakeArgs,
)
from nuncius.doors.tribbler.storage_service import clients_of, ring_of
from nuncius.ring.handover import NO_MASTER, CannotJoin
from nuncius.ring.members import CannotRegister
from nuncius.ring.peers import APPEND, PUT, RAISE, REMOVE, FoundKey, KeyRow, Mention, Registered
from nuncius.ring.ring import HashRange, NodePlace, Ring
from nuncius.ring.storage import KeyRefused, KeyStatus, OwnerSilent, StorageError

CHANGES = {PUT: "Put", APPEND: "AppendToList", REMOVE: "RemoveFromList", RAISE: "Raise"}
UNKNOWN = "rpc: can't find method"
NO_SERVICE = "rpc: can't find service"
G = TypeVar("G", GetReply, GetListReply)


class RpcPeer:
    def __init__(self, caller: RpcClient, id_of: Callable[[str], int] = lambda address: 0) -> None:
        """`id_of` returns the id on the ring of the node at an address; 0 if there is none."""
        self._caller = caller
        self._id_of = id_of

    async def read(
        self, lists: bool, keys: Sequence[str], wants: Sequence[bool], client: str
    ) -> Sequence[FoundKey]:
        found = await self._read_some(lists, keys, wants, client)
        while len(found) < len(keys):  # the keys that did not fit into one answer
            rest = slice(len(found), None)
            found += await self._read_some(lists, keys[rest], wants[rest], client)
        return found

    async def _read_some(
        self, lists: bool, keys: Sequence[str], wants: Sequence[bool], client: str
    ) -> list[FoundKey]:
        """Return values of the keys, from the first on, as many as fit into an answer."""
        if len(keys) == 1:
            return [await self._read_one(lists, keys[0], wants[0], client)]
        asked = GetManyArgs(list(keys), list(wants), client)
        try:
            replies: Sequence[GetReply | GetListReply]
            if lists:
                replies = (await self._caller.call("StorageRPC.GetLists", asked, GetListsReply)).replies
            else:
                replies = (await self._caller.call("StorageRPC.GetMany", asked, GetManyReply)).replies
        except RpcError as error:
            if not str(error).startswith(UNKNOWN):
                raise _failed(self._caller, error) from error
            pairs = zip(keys, wants, strict=True)
            return [await self._read_one(lists, key, want, client) for key, want in pairs]
        if not 0 < len(replies) <= len(keys):
            raise OwnerSilent(f"{self._caller.address} answers for other keys than it was asked for")
        return [_found(reply.status, reply.value, reply.lease) for reply in replies]

    async def _read_one(self, lists: bool, key: str, want: bool, client: str) -> FoundKey:
        wisher = client if want else ""
        reply: GetReply | GetListReply
        try:
            if lists:
                reply = await self._get("StorageRPC.GetList", key, wisher, GetListReply)
            else:
                reply = await self._get("StorageRPC.Get", key, wisher, GetReply)
        except RpcError as error:
            raise _failed(self._caller, error) from error
        return _found(reply.status, reply.value, reply.lease)

    async def _get(self, method: str, key: str, wisher: str, reply: type[G]) -> G:
        """Get a value or list, with a lease for the client at the address `wisher` if there is one."""
        if not wisher:
            return await self._caller.call(method, PlainGetArgs(key), reply)
        forms = [
            ClientGetArgs(key, True, Client(wisher, self._id_of(wisher))),
            GetArgs(key, True, wisher),
        ]
        form = self._caller.lease_form
        try:
            return await self._caller.call(method, forms[form], reply)
        except RpcError as error:
            if "LeaseClient" not in str(error):
                raise
        form = self._caller.lease_form = 1 - form
        return await self._caller.call(method, forms[form], reply)

    async def write(self, kind: int, key: str, item: str, mention: Mention | None) -> int:
        try:
            if kind == RAISE:
                return await self._raise(key, item)
            if mention is None:
                return await self._change(kind, key, item)
            asked = PostArgs(key, item, mention.list_key, mention.item, mention.group, mention.body)
            try:
                return (await self._caller.call("StorageRPC.Post", asked, PostReply)).length
            except RpcError as error:
                if not str(error).startswith(UNKNOWN):
                    raise
            await self._change(PUT, key, item)
            await self._change(APPEND, mention.list_key, mention.item)
            reply = await self._get("StorageRPC.GetList", mention.list_key, "", GetListReply)
            return len(reply.value)
        except RpcError as error:
            raise _failed(self._caller, error) from error

    async def _raise(self, key: str, number: str) -> int:
        try:
            return await self._change(RAISE, key, number)
        except RpcError as error:
            if not str(error).startswith(UNKNOWN):
                raise
        return await self._change(PUT, key, number)

    async def _change(self, kind: int, key: str, item: str) -> int:
        reply = await self._caller.call(f"StorageRPC.{CHANGES[kind]}", PutArgs(key, item), PutReply)
        if reply.status == KeyStatus.PUT_FAILED:
            raise KeyRefused("the owner does not store this key or value")
        return reply.status

    async def revoke(self, key: str) -> bool:
        try:
            return await self._revoke("StorageRPC", key)
        except RpcError as error:
            if not str(error).startswith(NO_SERVICE):
                raise
        # In later years of the course clients have caches of their own, and name this service differently.
        return await self._revoke("CacheRPC", key)

    async def _revoke(self, service: str, key: str) -> bool:
        asked = RevokeLeaseArgs(key)
        reply = await self._caller.call(f"{service}.RevokeLease", asked, RevokeLeaseReply, seconds=None)
        return reply.status == KeyStatus.OK

    async def register(self, places: Sequence[NodePlace]) -> Registered:
        try:
            reply = await self._caller.call("StorageRPC.Register", _registration(places), RegisterReply)
        except RpcError as error:
            raise CannotRegister(f"{self._caller.address} says: {error}") from error
        found = [NodePlace(each.node_id, each.host_port) for each in reply.clients]
        return Registered(reply.ready, found, reply.version or 1)

    async def ring(self) -> Ring | None:
        try:
            message = await self._caller.call("StorageRPC.Ring", RingArgs(), RingMessage)
        except RpcError as error:
            raise _failed(self._caller, error) from error
        return ring_of(message) if message.version else None

    async def join(self, places: Sequence[NodePlace]) -> Ring:
        try:
            asked = _registration(places)
            return ring_of(await self._caller.call("StorageRPC.Join", asked, RingMessage, seconds=None))
        except RpcError as error:
            final = any(words in str(error) for words in ("is taken", NO_MASTER))
            raise (CannotJoin if final else StorageError)(str(error)) from error

    async def hand_over(self, ring: Ring) -> None:
        message = RingMessage(ring.version, clients_of(ring.places))
        await self._ours("HandOver", message)

    async def take(self, forget: Sequence[HashRange], rows: Sequence[KeyRow]) -> None:
        message = TakeArgs(
            [HashStretch(each.first, each.last) for each in forget],
            [
                Row(
                    row.hashed,
                    row.key,
                    row.value is not None,
                    row.value or "",
                    row.items is not None,
                    row.items or [],
                )
                for row in rows
            ],
        )
        await self._ours("Take", message)

    async def _ours(self, method: str, message: RingMessage | TakeArgs) -> None:
        try:
            await self._caller.call(f"StorageRPC.{method}", message, Nothing, seconds=None)
        except RpcError as error:
            raise StorageError(f"{self._caller.address} says: {error}") from error


def _registration(places: Sequence[NodePlace]) -> RegisterArgs:
    first, *others = places
    return RegisterArgs(Client(first.host_port, first.node_id), [place.node_id for place in others])


def _found(status: int, value: str | list[str], lease: LeaseStruct) -> FoundKey:
    if status != KeyStatus.OK:
        return FoundKey(None)
    return FoundKey(value, lease.valid_seconds if lease.granted else 0)


def _failed(caller: RpcClient, error: RpcError) -> StorageError:
    return StorageError(f"{caller.address} says: {error}")
