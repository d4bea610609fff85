"""Post tribbles, on the node that owns the user: it alone assigns the times of the user's tribbles.

If several processes share a store, each owns all keys. They remember nothing about a user between tribbles,
and assign times that differ in their last digits.

A user's tribbles have strictly increasing times, even if the clock goes back: ids are times, and lists of ids
are in the order of times. The newest list is announced before it has its first id, so a reader may find it
empty, but never misses one. A process that announces late does not undo a newer list of another process.
"""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

from nuncius.ring.storage import Post
from nuncius.ring.storage_ring import RingStorage
from nuncius.ring.tribbler.model import (
    CHUNK,
    StoredTribble,
    chunk_key,
    encode_tribble,
    item,
    post_key,
    posted_at,
    posts_key,
)

AUTHORS = 100_000
"""The maximum number of users whose position is cached."""
PROCESSES = 1024


class _Author:
    """The position of a user's next tribble."""

    __slots__ = ("chunk", "count", "last", "loaded")

    def __init__(self) -> None:
        self.loaded = asyncio.Lock()
        self.chunk = -1
        self.count = CHUNK
        self.last = 0


class Posting:
    def __init__(
        self, storage: RingStorage, now: Callable[[], int] = time.time_ns, *, shared: bool = False
    ) -> None:
        self._storage = storage
        self._now = now
        self._shared = shared
        self._last = 0
        self._authors: dict[str, _Author] = {}

    async def post(self, user: str, contents: str) -> int:
        """Store a tribble and return its time."""
        author = self._authors.get(user)
        if author is None or author.count >= CHUNK:
            author = await self._place(user)
        post = self._next(author, user, contents)
        posted = author.last
        await self._storage.put_and_publish(post)
        return posted

    def post_soon(self, user: str, contents: str, done: Callable[[Any], None]) -> bool:
        """Store a tribble, if nothing has to be waited for. Return False if nothing was stored."""
        author = self._authors.get(user)
        if author is None or author.count >= CHUNK:
            return False
        if self._storage.post_soon(self._next(author, user, contents), done):
            return True
        author.count -= 1
        return False

    def _next(self, author: _Author, user: str, contents: str) -> Post:
        author.count += 1
        author.last = posted = self._time(author.last)
        value = encode_tribble(StoredTribble(user, posted, contents))
        return Post(
            post_key(user, posted), value.decode(), posts_key(user, author.chunk), item(posted), value
        )

    def _time(self, last: int) -> int:
        if not self._shared:
            return max(self._now(), last + 1)
        # Later than all times of this process: which of them are still on the way to the store is unknown.
        after = max(self._now(), max(last, self._last) + PROCESSES)
        self._last = after // PROCESSES * PROCESSES + os.getpid() % PROCESSES
        return self._last

    def forget(self) -> None:
        """Forget all positions: users may have moved to other nodes and posted there."""
        self._authors.clear()

    async def _place(self, user: str) -> _Author:
        """Return a user's position in a list that is not full. Reads the list first, and starts a new one if
        needed."""
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
