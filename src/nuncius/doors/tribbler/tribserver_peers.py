"""Access from one node of a ring to the applications of the others."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from nuncius.broker import future
from nuncius.doors.tribbler.rpc_client import RpcClients, RpcError
from nuncius.doors.tribbler.storage_peer import NO_SERVICE, UNKNOWN
from nuncius.doors.tribbler.tribserver_messages import (
    PostManyArgs,
    PostManyReply,
    PostTribbleArgs,
    PutManyArgs,
    RecentArgs,
    RecentReply,
    StatusReply,
)
from nuncius.ring.owner import check
from nuncius.ring.peers import PUT, Unreached
from nuncius.ring.storage import KeyRefused, OwnerSilent
from nuncius.ring.storage_ring import PATIENCE, PAUSE, RingStorage
from nuncius.ring.tribbler.local import LocalPosts
from nuncius.ring.tribbler.model import user_key
from nuncius.ring.tribbler.posting import Posting
from nuncius.ring.tribbler.recent import Posts

NOT_AT_ONCE = "cannot be posted at once"
"""Instead of an error: the tribble has to wait, so it is posted by a call of its own."""
MOST = 500  # tribbles of a call
MOST_CHARACTERS = 1 << 20  # of them, unless one has more


class PostForwarding:
    """Tribbles for users of one other node: while one call is under way, the next ones are collected."""

    def __init__(self, callers: RpcClients, node: str) -> None:
        self._callers = callers
        self._node = node
        self._waiting: list[tuple[str, str, asyncio.Future[bool]]] = []
        self._sending: asyncio.Task[None] | None = None

    async def post(self, user: str, contents: str) -> bool:
        """Post a tribble if the other node can store it at once. Return False if nothing was stored."""
        posted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((user, contents, posted))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.ensure_future(self._send())
        return await posted

    async def _send(self) -> None:
        while self._waiting:
            count = self._fitting()
            some, self._waiting = self._waiting[:count], self._waiting[count:]
            asked = PostManyArgs([user for user, _, _ in some], [contents for _, contents, _ in some])
            results: Sequence[bool | Exception]
            try:
                caller = self._callers.at(self._node)
                reply = await caller.call("Tribserver.PostMany", asked, PostManyReply)
                results = [_result(error) for _, error in zip(some, reply.errors, strict=True)]
            except ValueError:
                silent = OwnerSilent(f"{self._node} answers for other tribbles than it was sent")
                results = [silent] * len(some)
            except Exception as error:
                results = [_result(str(error)) if isinstance(error, RpcError) else error] * len(some)
            for (_, _, posted), result in zip(some, results, strict=True):
                future.complete(posted, result)

    def _fitting(self) -> int:
        """Return how many of the waiting tribbles fit into a call."""
        size = 0
        for n, (_, contents, _) in enumerate(self._waiting[:MOST]):
            size += len(contents)
            if n and size > MOST_CHARACTERS:
                return n
        return MOST


def _result(error: str) -> bool | Exception:
    if error == NOT_AT_ONCE or error.startswith((UNKNOWN, NO_SERVICE)):
        return False
    return KeyRefused(error) if error else True


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
        self._forwarding: dict[str, PostForwarding] = {}
        self._version = 0

    def names(self) -> Sequence[str]:
        ring = self._storage.ring
        return ring.nodes if ring is not None else [self._storage.me]

    async def post(self, user: str, contents: str) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            ring = self._storage.ring
            owner = ring.owner(user_key(user)) if ring is not None else self._storage.me
            try:
                if owner == self._storage.me:
                    await self.post_here(user, contents)
                else:
                    await self._post_at(owner, user, contents)
                return
            except Unreached:
                if asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(PAUSE)

    async def _post_at(self, owner: str, user: str, contents: str) -> None:
        """Post a tribble through another node."""
        forwarding = self._forwarding.get(owner)
        if forwarding is None:
            forwarding = self._forwarding[owner] = PostForwarding(self._callers, owner)
        if await forwarding.post(user, contents):
            return
        try:
            call = PostTribbleArgs(user, contents)
            await self._callers.at(owner).call("Tribserver.PostFor", call, StatusReply)
        except RpcError as error:
            if not str(error).startswith((UNKNOWN, NO_SERVICE)):
                raise KeyRefused(str(error)) from error
            await self._abroad.post(user, contents)

    async def post_here(self, user: str, contents: str) -> None:
        self._heed_ring()
        posted, done = future.new()
        if self._posting.post_soon(user, contents, done):
            await posted
        else:
            await self._posting.post(user, contents)

    async def post_many(self, users: Sequence[str], contents: Sequence[str]) -> list[str]:
        """Post the tribbles that can be stored at once. Return an error for each other one."""
        if len(users) != len(contents):
            raise KeyRefused("there must be as many tribbles as users")
        self._heed_ring()
        errors = [""] * len(users)
        left = len(users)
        all_done = asyncio.get_running_loop().create_future()

        def done(n: int, result: Any) -> None:
            nonlocal left
            errors[n] = str(result) if isinstance(result, Exception) else ""
            left -= 1
            if not left:
                future.complete(all_done, None)

        for n, (user, text) in enumerate(zip(users, contents, strict=True)):
            try:
                if not self._posting.post_soon(user, text, partial(done, n)):
                    done(n, KeyRefused(NOT_AT_ONCE))
            except KeyRefused as error:
                done(n, error)
        if left:
            await all_done
        return errors

    def _heed_ring(self) -> None:
        """Forget the facts about users if the ring has changed: another node may have owned them between."""
        ring = self._storage.ring
        if ring is not None and ring.version != self._version:
            self._version = ring.version
            self._posting.forget()

    async def recent(self, node: str, offsets: list[int] | None) -> Posts:
        if node == self._storage.me:
            return await self._local.recent(offsets)
        question = RecentArgs(offsets is None, offsets or [])
        try:
            reply = await self._callers.at(node).call("Tribserver.Recent", question, RecentReply)
        except RpcError as error:
            raise KeyRefused(str(error)) from error
        return Posts(reply.topic, reply.starts, reply.counts, reply.users, reply.posted, reply.more)

    async def put_many(self, keys: Sequence[str], values: Sequence[str]) -> None:
        """Put values, with one call to each node that owns some of them."""
        if len(keys) != len(values):
            raise KeyRefused("there must be as many values as keys")
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
                raise KeyRefused(str(error)) from error

        await asyncio.gather(*(put(node, some) for node, some in groups.items()))
