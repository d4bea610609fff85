"""Tribbler, the application: stateless, on a key-value store distributed over the ring.

It caches only what never becomes outdated: users are never deleted, so one that was seen needs no second
read.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from nuncius.ring.storage import KeyRefused, KeyStatus, StorageError
from nuncius.ring.storage_ring import RingStorage
from nuncius.ring.tribbler import feed
from nuncius.ring.tribbler.model import (
    MAX_NAME,
    Reference,
    StoredTribble,
    TribbleStatus,
    subscriptions_key,
    timeline_key,
    user_key,
)
from nuncius.ring.tribbler.recent import Posts, Recent
from nuncius.ring.tribbler.timelines import PROGRESS, decode_progress, decode_timeline

KNOWN_USERS = 100_000

Answer = tuple[TribbleStatus, list[StoredTribble]]


class Peers(Protocol):
    """The applications of the ring's nodes, including this one."""

    def names(self) -> Sequence[str]:
        """Return the names of all nodes."""

    async def post(self, user: str, contents: str) -> None:
        """Post a tribble through the node that owns its user."""

    async def recent(self, node: str, offsets: list[int] | None) -> Posts:
        """Return recent posts of a node's users; see `tribbler_recent`."""


class Tribbler:
    def __init__(self, storage: RingStorage, peers: Peers, *, timelines_from: int) -> None:
        """Serve users. Those who follow at least `timelines_from` others get the pipeline's feed, if there is
        one."""
        self._storage = storage
        self._peers = peers
        self._recent = Recent(peers.names, peers.recent)
        self._timelines_from = timelines_from
        self._known: OrderedDict[str, None] = OrderedDict()

    async def create_user(self, user: str) -> TribbleStatus:
        if len(user.encode("utf-8", "surrogateescape")) > MAX_NAME:
            raise KeyRefused(f"a user's name has at most {MAX_NAME} bytes")
        status = await self._storage.append(user_key(user), user)
        return TribbleStatus.OK if status is KeyStatus.OK else TribbleStatus.EEXISTS

    async def add_subscription(self, user: str, target: str) -> TribbleStatus:
        problem = await self._problem(user, target)
        if problem is not None:
            return problem
        status = await self._storage.append(subscriptions_key(user), target)
        return TribbleStatus.OK if status is KeyStatus.OK else TribbleStatus.EEXISTS

    async def remove_subscription(self, user: str, target: str) -> TribbleStatus:
        problem = await self._problem(user, target)
        if problem is not None:
            return problem
        status = await self._storage.remove(subscriptions_key(user), target)
        return TribbleStatus.OK if status is KeyStatus.OK else TribbleStatus.ENOSUCHTARGETUSER

    async def subscriptions(self, user: str) -> tuple[TribbleStatus, list[str]]:
        exists, followed = await self._storage.get_lists([user_key(user), subscriptions_key(user)])
        return (TribbleStatus.OK, followed) if exists else (TribbleStatus.ENOSUCHUSER, [])

    async def post(self, user: str, contents: str) -> TribbleStatus:
        if not await self._exist(user):
            return TribbleStatus.ENOSUCHUSER
        await self._peers.post(user, contents)
        return TribbleStatus.OK

    async def tribbles(self, user: str) -> Answer:
        """Return a user's newest tribbles."""
        exists, newest = await asyncio.gather(self._exist(user), feed.newest(self._storage, [user]))
        if not exists:
            return TribbleStatus.ENOSUCHUSER, []
        return TribbleStatus.OK, await feed.read(self._storage, newest)

    async def tribbles_by_subscription(self, user: str) -> Answer:
        """Return the newest tribbles of all users that a user follows."""
        status, followed = await self.subscriptions(user)
        if status is not TribbleStatus.OK:
            return status, []
        if len(followed) >= self._timelines_from:
            newest = await self._from_timeline(user, frozenset(followed))
            if newest is not None:
                tribbles = await feed.read(self._storage, newest)
                # Any client can write to the topic. An entry that is not a tribble has taken the place of
                # one.
                if len(tribbles) == len(newest):
                    return status, tribbles
        return status, await feed.read(self._storage, await feed.newest(self._storage, followed))

    async def _from_timeline(self, user: str, followed: frozenset[str]) -> list[Reference] | None:
        """Compute the feed from the user's timeline. Return None if that is impossible or uncertain."""
        # Read the progress first: a later run may rewrite the timeline, and its progress is valid for the new
        # one only.
        progress = decode_progress(await self._storage.get(PROGRESS))
        timeline = decode_timeline(await self._storage.get(timeline_key(user)))
        if timeline is None:
            return None
        later = sorted(followed.difference(timeline.of))
        if len(later) >= self._timelines_from:
            return None
        try:
            recent = await self._recent.top(timeline.position(progress), followed)
        except StorageError:  # a node does not answer; the user may follow no user of that node
            recent = None
        if recent is None:
            return None
        joined = await feed.newest(self._storage, later) if later else []
        best = feed.top([*timeline.references(followed), *joined, *recent])
        return best if timeline.is_certain(best) else None

    async def _problem(self, user: str, target: str) -> TribbleStatus | None:
        if await self._exist(user, target):
            return None
        if await self._exist(user):
            return TribbleStatus.ENOSUCHTARGETUSER
        return TribbleStatus.ENOSUCHUSER

    async def _exist(self, *users: str) -> bool:
        """Return True if all these users exist."""
        unknown = [user for user in users if user not in self._known]
        if not unknown:
            return True
        lists = await self._storage.get_lists([user_key(user) for user in unknown])
        for user, found in zip(unknown, lists, strict=True):
            if found:
                self._known[user] = None
        while len(self._known) > KNOWN_USERS:
            self._known.popitem(last=False)
        return all(lists)
