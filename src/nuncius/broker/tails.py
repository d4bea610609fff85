"""The recent ends of partitions, shared by everybody who reads there.

Fifty subscribers of one topic want the same entries at nearly the same time. The first one to ask has them
fetched; the others find them here, in the same object, beside what a door has already made of them.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nuncius.broker import future
from nuncius.broker.topics import Topics
from nuncius.store.fetching import GONE, Entries

FETCH = 2000  # entries at a time
MAX_BYTES = 32 << 20
PER_ENTRY = 200  # bytes of memory an entry costs besides its body


@dataclass(slots=True, eq=False)
class Chunk:
    """Consecutive entries of a partition. `rendered` is for doors to keep what they made of them."""

    entries: Entries
    rendered: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slice:
    """Entries of a chunk, from index `start` to before `end`."""

    partition: int
    chunk: Chunk
    start: int
    end: int

    @property
    def entries(self) -> Entries:
        whole = self.chunk.entries
        if self.start == 0 and self.end == len(whole.bodies):
            return whole
        return whole.part(self.start, self.end)

    @property
    def first_offset(self) -> int:
        return self.chunk.entries.first_offset + self.start

    @property
    def next_offset(self) -> int:
        return self.chunk.entries.first_offset + self.end


class Tails:
    def __init__(self, topics: Topics, max_bytes: int = MAX_BYTES) -> None:
        self._topics = topics
        self._max_bytes = max_bytes
        self._chunks: dict[int, list[Chunk]] = {}  # by partition id, in order of offsets
        self._oldest: deque[tuple[int, Chunk, int]] = deque()  # partition id, chunk, size
        self._bytes = 0
        self._under_way: dict[tuple[int, int], Any] = {}  # partition id, position: a future

    def known(self, partition_id: int, position: int) -> tuple[Chunk, int] | None:
        """The chunk in which this offset is, and where in it, if it is at hand."""
        chunks = self._chunks.get(partition_id)
        if not chunks:
            return None
        at = bisect_right(chunks, position, key=lambda chunk: chunk.entries.first_offset) - 1
        if at < 0 or position >= chunks[at].entries.next_offset:
            return None
        return chunks[at], position - chunks[at].entries.first_offset

    async def fetch(
        self, partition_id: int, position: int, caller: Hashable
    ) -> tuple[Chunk, int] | int | None:
        """The same, fetched if need be; None when there is nothing there yet, or GONE. Where retention has
        passed the position, the chunk begins beyond it."""
        found = self.known(partition_id, position)
        if found is not None:
            return found
        place = (partition_id, position)
        fetched = self._under_way.get(place)
        if fetched is None:
            fetched, done = future.new()
            self._under_way[place] = fetched
            self._topics.fetch_now(partition_id, position, FETCH, caller).add_done_callback(
                partial(self._fetched, place, done)
            )
        chunk = await asyncio.shield(fetched)  # others may wait for it, too
        if chunk is None or chunk == GONE:
            return chunk  # type: ignore[no-any-return]
        return chunk, max(0, position - chunk.entries.first_offset)

    def forget(self) -> None:
        """Entries may have become unreadable."""
        self._chunks.clear()
        self._oldest.clear()
        self._bytes = 0

    def _fetched(self, place: tuple[int, int], done: Any, answer: Any) -> None:
        del self._under_way[place]
        if answer.cancelled():
            done(None)
            return
        error = answer.exception()
        if error is not None:
            done(error)
            return
        entries = answer.result()
        if not isinstance(entries, Entries):
            done(entries)
            return
        chunk = Chunk(entries)
        self._keep(place[0], chunk)
        done(chunk)

    def _keep(self, partition_id: int, chunk: Chunk) -> None:
        chunks = self._chunks.setdefault(partition_id, [])
        at = bisect_right(chunks, chunk.entries.first_offset, key=lambda each: each.entries.first_offset)
        chunks.insert(at, chunk)
        size = sum(map(len, chunk.entries.bodies)) + PER_ENTRY * len(chunk.entries.bodies)
        self._oldest.append((partition_id, chunk, size))
        self._bytes += size
        while self._bytes > self._max_bytes and len(self._oldest) > 1:
            oldest, dropped, freed = self._oldest.popleft()
            self._bytes -= freed
            self._chunks[oldest].remove(dropped)
            if not self._chunks[oldest]:
                del self._chunks[oldest]
