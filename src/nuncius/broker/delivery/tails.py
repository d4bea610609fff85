"""Cache of the recent ends of partitions, shared by all their readers.

Fifty subscribers of one topic want the same entries at nearly the same time. The first reader has them
fetched; the others find them here, in the same object, with the form that a door has already rendered.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from operator import attrgetter
from typing import Any

import msgspec

from nuncius.broker import future
from nuncius.broker.background.signals import Signals
from nuncius.broker.caller import Caller
from nuncius.broker.topics.topics import Topics
from nuncius.store.calls.fetching import GONE, FetchedEntries

FETCH = 2000  # entries at a time
MAX_BYTES = 64 << 20
PER_ENTRY = 200  # bytes of memory an entry costs besides what is in it
PER_CHUNK = 1000
_start = attrgetter("start")


class TailChunk:
    """Consecutive entries of a partition. Doors keep their rendered form of them in `rendered`."""

    __slots__ = ("end", "entries", "rendered", "start")

    def __init__(self, entries: FetchedEntries) -> None:
        self.entries = entries
        self.start = entries.first_offset
        self.end = entries.next_offset
        self.rendered: dict[str, Any] = {}


class TailSlice(msgspec.Struct, frozen=True, gc=False):
    """Entries of a chunk, from index `start` to before `end`."""

    partition: int
    chunk: TailChunk
    start: int
    end: int

    @property
    def entries(self) -> FetchedEntries:
        whole = self.chunk.entries
        if self.start == 0 and self.end == len(whole.bodies):
            return whole
        return whole.part(self.start, self.end)

    @property
    def size(self) -> int:
        """Return the size of the bodies."""
        return sum(map(len, self.chunk.entries.bodies[self.start : self.end]))

    @property
    def first_offset(self) -> int:
        return self.chunk.start + self.start

    @property
    def next_offset(self) -> int:
        return self.chunk.start + self.end


class Tails:
    def __init__(self, topics: Topics, signals: Signals, max_bytes: int = MAX_BYTES) -> None:
        self._topics = topics
        self.signals = signals
        self.on_delivery: Callable[[Caller, int], None] = _ignore
        """Called with the caller and the number of entries that a cursor has delivered."""
        self._max_bytes = max_bytes
        self._chunks: dict[int, list[TailChunk]] = {}  # by partition id, in order of offsets
        self._oldest: deque[tuple[int, TailChunk, int]] = deque()  # partition id, chunk, size
        self._bytes = 0
        self._forgotten = 0  # how often the cache was dropped
        self._unshared = count()
        # By partition id, position and version: a reader with a newer version shares no older fetch.
        self._under_way: dict[tuple[int, int, int], asyncio.Future[Any]] = {}

    def known(self, partition_id: int, position: int) -> tuple[TailChunk, int] | None:
        """Return the cached chunk with this offset and the index in it, or None."""
        chunks = self._chunks.get(partition_id)
        if chunks is None:
            return None
        chunk = chunks[bisect_right(chunks, position, key=_start) - 1] if len(chunks) > 1 else chunks[0]
        return (chunk, position - chunk.start) if chunk.start <= position < chunk.end else None

    async def fetch(
        self, partition_id: int, position: int, version: int | None, caller: Caller, limit: int = FETCH
    ) -> tuple[TailChunk, int] | int | None:
        """Return the same, fetched if necessary, with up to `limit` entries; None if there is nothing yet, or
        GONE. If retention has passed the position, the chunk begins after it. A fetch that is under way is
        shared if it began at this version of the topic. None: it is not."""
        found = self.known(partition_id, position)
        if found is not None:
            return found
        place = (partition_id, position, -1 - next(self._unshared) if version is None else version)
        fetched = self._under_way.get(place)
        if fetched is None:
            fetched, done = future.new()
            self._under_way[place] = fetched
            self._topics.fetch_now(partition_id, position, limit, caller).add_done_callback(
                partial(self._fetched, place, self._forgotten, done)
            )
        chunk = await asyncio.shield(fetched)  # others may wait for it, too
        if chunk is None or chunk == GONE:
            return chunk  # type: ignore[no-any-return]
        return chunk, max(0, position - chunk.start)

    async def fetch_one(self, partition_id: int, offset: int, caller: Caller) -> tuple[TailChunk, int] | None:
        """Return exactly this entry, if it still exists. Do not cache it: only its subscriber needs it."""
        found = self.known(partition_id, offset)
        if found is None:
            entries = await self._topics.fetch_now(partition_id, offset, 1, caller)
            if isinstance(entries, FetchedEntries) and entries.first_offset == offset:
                found = TailChunk(entries), 0
        return found

    def forget(self) -> None:
        """Drop the cache: entries may have become unreadable."""
        self._chunks.clear()
        self._oldest.clear()
        self._bytes = 0
        self._forgotten += 1

    def _fetched(
        self,
        place: tuple[int, int, int],
        forgotten: int,
        done: Callable[[Any], None],
        answer: asyncio.Future[FetchedEntries | int | None],
    ) -> None:
        del self._under_way[place]
        error = answer.exception()
        if error is not None:
            done(error)
            return
        entries = answer.result()
        if not isinstance(entries, FetchedEntries):
            done(entries)
            return
        chunk = TailChunk(entries)
        if forgotten == self._forgotten:
            self._keep(place[0], chunk)
        done(chunk)

    def _keep(self, partition_id: int, chunk: TailChunk) -> None:
        known = self.known(partition_id, chunk.start)
        if known is not None and known[0].end >= chunk.end:
            return
        chunks = self._chunks.setdefault(partition_id, [])
        chunks.insert(bisect_right(chunks, chunk.start, key=_start), chunk)
        size = _size(chunk.entries)
        self._oldest.append((partition_id, chunk, size))
        self._bytes += size
        while self._bytes > self._max_bytes and len(self._oldest) > 1:
            oldest, dropped, freed = self._oldest.popleft()
            self._bytes -= freed
            self._chunks[oldest].remove(dropped)
            if not self._chunks[oldest]:
                del self._chunks[oldest]


def _ignore(caller: Caller, entries: int) -> None:
    """Do nothing: deliveries are not counted."""


def _size(entries: FetchedEntries) -> int:
    size = PER_CHUNK + PER_ENTRY * len(entries.bodies) + sum(map(len, entries.bodies))
    for texts in (entries.keys, entries.headers):
        size += sum(len(text) for text in texts or () if text)
    return size
