"""Posting, on the node that owns the user: it alone gives out the times of the user's tribbles.

Several processes on one store each own everything. They remember nothing of a user between tribbles, and
give out times that differ in their last digits.

A user's tribbles have strictly rising times, also when the clock goes back: ids are times, and lists of ids
are in the order of times. The newest list is announced before its first id is in it, so a reader may find it
empty, but never misses one; a process that announces late does not take back a newer list of another's.
"""

import asyncio
import os
import time
from collections.abc import Callable

from nuncius.ring.storage import Post, Storage
from nuncius.ring.tribbler.model import (
    CHUNK,
    Tribble,
    chunk_key,
    encode_tribble,
    item,
    post_key,
    posted_at,
    posts_key,
)

AUTHORS = 100_000
"""Users whose place is remembered."""
PROCESSES = 1024


class _Author:
    """Where a user's next tribble goes."""

    __slots__ = ("chunk", "count", "last", "loaded")

    def __init__(self) -> None:
        self.loaded = asyncio.Lock()
        self.chunk = -1
        self.count = CHUNK
        self.last = 0


class Posting:
    def __init__(
        self, storage: Storage, now: Callable[[], int] = time.time_ns, *, shared: bool = False
    ) -> None:
        self._storage = storage
        self._now = now
        self._shared = shared
        self._last = 0
        self._authors: dict[str, _Author] = {}

    async def post(self, user: str, contents: str) -> int:
        """Stores a tribble; answers with its time."""
        author = self._authors.get(user)
        if author is None or author.count >= CHUNK:
            author = await self._place(user)
        author.count += 1
        author.last = posted = self._time(author.last)
        value = encode_tribble(Tribble(user, posted, contents))
        await self._storage.put_and_publish(
            Post(post_key(user, posted), value.decode(), posts_key(user, author.chunk), item(posted), value)
        )
        return posted

    def _time(self, last: int) -> int:
        if not self._shared:
            return max(self._now(), last + 1)
        # After everything that this process gave out: what of it is on its way to the store is not known.
        after = max(self._now(), max(last, self._last) + PROCESSES)
        self._last = after // PROCESSES * PROCESSES + os.getpid() % PROCESSES
        return self._last

    def forget(self) -> None:
        """Others may have posted for users that are not ours any more."""
        self._authors.clear()

    async def _place(self, user: str) -> _Author:
        """A user's place in a list that is not full, after looking where that is and making a new one if need
        be."""
        self._authors[user] = author = self._authors.pop(user, None) or _Author()
        async with author.loaded:
            if author.chunk < 0:
                await self._load(user, author)
            if author.count >= CHUNK:
                await self._storage.raise_to(chunk_key(user), author.chunk + 1)
                author.chunk += 1
                author.count = 0
        while len(self._authors) > (0 if self._shared else AUTHORS):
            del self._authors[next(iter(self._authors))]
        return author

    async def _load(self, user: str, author: _Author) -> None:
        number = await self._storage.get(chunk_key(user))
        if number is None:
            return
        chunks = range(max(int(number) - 1, 0), int(number) + 1)
        lists = await self._storage.get_lists([posts_key(user, n) for n in chunks])
        author.last = max((posted_at(each) for ids in lists for each in ids), default=0)
        author.chunk, author.count = int(number), len(lists[-1])
