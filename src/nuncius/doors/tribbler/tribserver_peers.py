"""Access from one node of a ring to the applications of the others."""

import asyncio
from collections.abc import Sequence

from nuncius.doors.tribbler import tribserver
from nuncius.doors.tribbler.rpc_client import RpcClients, RpcError
from nuncius.doors.tribbler.services import Service
from nuncius.doors.tribbler.storage_peer import NO_SERVICE, UNKNOWN
from nuncius.doors.tribbler.tribserver_messages import (
    PostTribbleArgs,
    PutManyArgs,
    RecentArgs,
    RecentReply,
    StatusReply,
)
from nuncius.ring.owner import check
from nuncius.ring.peers import PUT, Unreached
from nuncius.ring.storage import Refused
from nuncius.ring.storage_ring import PATIENCE, PAUSE, RingStorage
from nuncius.ring.tribbler.local import LocalPosts, Query
from nuncius.ring.tribbler.model import user_key
from nuncius.ring.tribbler.posting import Posting
from nuncius.ring.tribbler.recent import Posts
from nuncius.ring.tribbler.tribbler import Tribbler


class RingPeers:
    def __init__(
        self,
        storage: RingStorage,
        callers: RpcClients,
        posting: Posting,
        local: LocalPosts,
    ) -> None:
        self._storage = storage
        self._callers = callers
        self._posting = posting
        self._abroad = Posting(storage, shared=True)
        """For users whose keys are at a node that cannot post, such as a Go program."""
        self._local = local
        self._version = 0

    def names(self) -> Sequence[str]:
        ring = self._storage.ring
        return ring.nodes if ring is not None else [self._storage.me]

    async def post(self, user: str, contents: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while True:
            ring = self._storage.ring
            owner = ring.owner(user_key(user)) if ring is not None else self._storage.me
            if owner == self._storage.me:
                await self.post_here(user, contents)
                return
            try:
                caller = self._callers.at(owner)
                await caller.call("Tribserver.PostFor", PostTribbleArgs(user, contents), StatusReply)
                return
            except RpcError as error:
                if not str(error).startswith((UNKNOWN, NO_SERVICE)):
                    raise Refused(str(error)) from error
                await self._abroad.post(user, contents)
                return
            except Unreached:
                if loop.time() > deadline:
                    raise
            await asyncio.sleep(PAUSE)

    async def post_here(self, user: str, contents: str) -> int:
        ring = self._storage.ring
        if ring is not None and ring.version != self._version:
            # Cached facts of a user are outdated if another node owned it in between.
            self._version = ring.version
            self._posting.forget()
        return await self._posting.post(user, contents)

    async def recent(self, node: str, offsets: list[int] | None) -> Posts:
        if node == self._storage.me:
            return await self._local.recent(offsets)
        question = RecentArgs(offsets is None, offsets or [])
        try:
            reply = await self._callers.at(node).call("Tribserver.Recent", question, RecentReply)
        except RpcError as error:
            raise Refused(str(error)) from error
        return Posts(reply.topic, reply.starts, reply.counts, reply.users, reply.posted, reply.more)

    async def put_many(self, keys: Sequence[str], values: Sequence[str]) -> None:
        """Put values, with one call to each node that owns some of them."""
        if len(keys) != len(values):
            raise Refused("there must be as many values as keys")
        for key, value in zip(keys, values, strict=True):
            check(PUT, key, value, None)
        ring, me = self._storage.ring, self._storage.me
        groups: dict[str, list[int]] = {}
        for n, key in enumerate(keys):
            groups.setdefault(me if ring is None else ring.owner(key), []).append(n)

        async def put(node: str, some: Sequence[int]) -> None:
            if node == me:
                await asyncio.gather(*(self._storage.put(keys[n], values[n]) for n in some))
                return
            args = PutManyArgs([keys[n] for n in some], [values[n] for n in some])
            try:
                await self._callers.at(node).call("Tribserver.PutMany", args, StatusReply)
            except RpcError as error:
                raise Refused(str(error)) from error

        await asyncio.gather(*(put(node, some) for node, some in groups.items()))


def build(
    storage: RingStorage,
    callers: RpcClients,
    query: Query,
    *,
    shared: bool = False,
    timelines_from: int,
) -> Service:
    """Return the Tribbler service of a node. `query` asks the node's own store; `shared`: other processes own
    the same keys."""
    posting = Posting(storage, shared=shared)
    local = LocalPosts(query)
    peers = RingPeers(storage, callers, posting, local)
    return tribserver.service(
        Tribbler(storage, peers, timelines_from=timelines_from),
        peers.post_here,
        local.recent,
        peers.put_many,
    )
