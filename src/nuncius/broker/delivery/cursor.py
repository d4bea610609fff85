"""A cursor reads a topic's partitions in turn, ahead of a subscription's positions.

Reading moves only the cursor. Entries come from `Tails`, the cache that all cursors of a node share.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from nuncius.broker.caller import NODE, Caller
from nuncius.broker.delivery.tails import FETCH, TailChunk, Tails, TailSlice
from nuncius.broker.errors import NoSuchTopic
from nuncius.broker.topics.topic import Topic

AT_ONCE = 32  # partitions to fetch together: their entries are in memory at the same time
LEAST_AHEAD = 16  # entries to fetch of one partition

Place = tuple[int, int]  # a partition's id, the next offset

Fetched = tuple[TailChunk, int] | int | BaseException | None  # a result of `Tails.fetch`, or its failure

# For a partition and an offset: the next offset that a look must leave out, if any.
Bound = Callable[[int, int], int | None]


class Cursor:
    def __init__(
        self,
        tails: Tails,
        topic: Topic,
        places: Mapping[int, Place] | None = None,
        *,
        find: Callable[[], Awaitable[Mapping[int, Place]]] | None = None,
        ahead: int | None = None,
    ) -> None:
        """Create a cursor at these places, by partition. It returns to a partition that had no entries after
        `rewind`; with `find`, which looks up the places of all partitions, whenever there may be new entries
        or partitions. With `ahead`, so many entries are read ahead over all partitions; otherwise as many as
        fit into a fetch, of each."""
        self.topic = topic
        self.places: dict[int, Place] = dict(places or {})
        """The partitions in the order of their turns."""
        self._tails = tails
        self._signals = tails.signals
        self._find = find
        self._ahead = ahead
        self._line = dict.fromkeys(self.places)  # those that may have entries
        self._version = -1  # the topic's version when all of them were put into the line
        self._catalogue = -1

    async def find_places(self) -> None:
        """Look up the positions of partitions that are new to this cursor."""
        self._catalogue = self._signals.catalogue
        assert self._find is not None
        for partition, place in (await self._find()).items():
            self.places.setdefault(partition, place)
        self._version = -1

    def rewind(self, partition: int, place: Place) -> None:
        """Go on from this place, where there may be entries."""
        self.places[partition] = place
        self._line[partition] = None

    def resume(self, partition: int, partition_id: int, position: int) -> None:
        """Return to a partition that has entries at this position, or further where the cursor is."""
        if partition not in self._line:
            _, reached = self.places.get(partition, (0, 0))
            self.rewind(partition, (partition_id, max(position, reached)))

    def forget_dry(self) -> None:
        """Forget the places in partitions that had no more entries."""
        self.places = {partition: self.places[partition] for partition in self._line}

    @property
    def version(self) -> int:
        """Return the topic's version, which goes up when there are new entries."""
        return self._signals.version(self.topic.topic_id)

    @property
    def is_dry(self) -> bool:
        """Return True if no partition may have more entries, as far as the cursor knows."""
        return not self._line

    async def next(
        self, limit: int, caller: Caller = NODE, gate: AbstractAsyncContextManager[None] | None = None
    ) -> TailSlice:
        """Return the next entries, of one partition. Wait until there are some. Each look goes through the
        gate, if there is one."""
        with self._signals.watching(self.topic.topic_id) as news:
            while True:
                news.clear()
                async with gate or nullcontext():
                    found = await self.look(limit, caller)
                if found is not None:
                    self._tails.on_delivery(caller, found.end - found.start)
                    return found
                await news.wait()

    async def look_for(self, limit: int, room: int, caller: Caller = NODE) -> list[TailSlice]:
        """Return the next entries of all partitions, at most so many, and about so many bytes."""
        found: list[TailSlice] = []
        while limit > 0 and room > 0:
            piece = await self.look(limit, caller)
            if piece is None:
                break
            found.append(piece)
            limit -= piece.end - piece.start
            self._tails.on_delivery(caller, piece.end - piece.start)
            room -= piece.size
        return found

    async def look(self, limit: int, caller: Caller = NODE, bound: Bound | None = None) -> TailSlice | None:
        """Return the next entries, of one partition, or None. Entries that the bound excludes are fetched,
        too, for `take_fetched`. A partition that cannot be read fails the look if no other has entries."""
        await self._line_up()
        partitions = list(self._line)
        if not partitions:
            return None
        found = None
        if self._tails.known(*self.places[partitions[0]]) is not None:
            await asyncio.sleep(0)  # let other tasks run: reading from memory may go on for long
            found = self._take(limit, bound)
            if found is not None:
                return found
            partitions = list(self._line)
        failed: BaseException | None = None
        for start in range(0, len(partitions), AT_ONCE):
            for partition, chunk in await self._fetch(partitions[start : start + AT_ONCE], caller):
                if chunk is None:
                    self._line.pop(partition, None)
                elif isinstance(chunk, BaseException):
                    failed = failed or chunk
                elif not isinstance(chunk, tuple):
                    raise NoSuchTopic(f"topic {self.topic.name!r} was deleted")
                elif found is None:
                    found = self._move(partition, *chunk, limit, bound)
            if found is not None:
                return found
        if failed is not None:
            raise failed
        return None

    def _take(self, limit: int, bound: Bound | None) -> TailSlice | None:
        for partition in self._line:
            known = self._tails.known(*self.places[partition])
            found = known and self._move(partition, *known, limit, bound)
            if known is None or found is not None:
                return found
        return None

    def take_one(self) -> tuple[int, int, bytes] | None:
        """Return the next entry's partition id, offset and body, if it is in memory."""
        line = self._line
        for partition in line:
            partition_id, position = self.places[partition]
            known = self._tails.known(partition_id, position)
            if known is None:
                return None
            self.places[partition] = (partition_id, position + 1)
            if len(line) > 1:
                del line[partition]
                line[partition] = None
            return partition_id, position, known[0].entries.bodies[known[1]]
        return None

    def take_fetched(self, partition: int, end: int, limit: int) -> TailSlice | None:
        """Return the next entries of this partition below the offset `end`, as far as they are fetched."""
        place = self.places[partition]
        known = self._tails.known(*place)
        return known and self._move(partition, *known, min(limit, end - place[1]), None)

    def fetched_to(self, partition: int) -> int:
        """Return the offset to which this partition is fetched without a gap, from the cursor on."""
        place = self.places[partition]
        known = self._tails.known(*place)
        return place[1] if known is None else known[0].end

    def has_found_nothing(self, partition: int) -> bool:
        """Return True if the last look found no entries here, and the topic has no new ones since."""
        return partition not in self._line and self._version == self.version

    async def _line_up(self) -> None:
        """Put all partitions into the line if there may be new entries or partitions."""
        if self._find is None:
            return
        if self._catalogue != self._signals.catalogue:
            await self.find_places()
        if self._version != self.version:
            self._version = self.version
            self._line = dict.fromkeys(self.places)

    async def _fetch(self, partitions: Sequence[int], caller: Caller) -> Iterable[tuple[int, Fetched]]:
        """Fetch the next entries of these partitions."""
        limit = FETCH if self._ahead is None else max(LEAST_AHEAD, self._ahead // len(self._line))
        # Places that were given are known to have entries: a fetch that began before would not find them.
        version = None if self._find is None else self.version
        fetching = [self._tails.fetch(*self.places[each], version, caller, limit) for each in partitions]
        results: Sequence[Fetched]
        if len(fetching) > 1:
            results = await asyncio.gather(*fetching, return_exceptions=True)
        else:
            try:
                results = [await fetching[0]]
            except Exception as error:
                results = [error]
        return zip(partitions, results, strict=True)

    def _move(
        self, partition: int, chunk: TailChunk, start: int, limit: int, bound: Bound | None
    ) -> TailSlice | None:
        partition_id, _ = self.places[partition]
        first = chunk.start
        end = min(start + limit, len(chunk.entries.bodies))
        excluded = None if bound is None else bound(partition, first + start)
        if excluded is not None and excluded < first + end:
            end = excluded - first
            if end == start:
                self.places[partition] = (partition_id, excluded)  # retention may have passed what was before
                return None
        self._pass(partition, partition_id, first + end)
        return TailSlice(partition, chunk, start, end)

    def _pass(self, partition: int, partition_id: int, position: int) -> None:
        """Go on to this position, and to the back of the line, so that no partition starves the others."""
        del self.places[partition]
        self.places[partition] = (partition_id, position)
        self._line.pop(partition, None)
        self._line[partition] = None
