"""The store and the lake as one: the readable range of every partition, and the place of each part of it.

Entries never change and offsets are dense, so an entry is the same in both. Archived entries are read from
the lake, to relieve the store.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nuncius.pipeline.catalogue import Stores, TopicPartition, look
from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.source import times
from nuncius.pipeline.source.columns import in_time
from nuncius.pipeline.source.loss import lost
from nuncius.pipeline.source.options import Edge, Offsets, ReadOptions
from nuncius.pipeline.source.slices import Part, ReadSlice, cut
from nuncius.store.queries import query

if TYPE_CHECKING:
    from nuncius.pipeline.lake.files import LakeFile

_LAKE = query("lake", "location")


@dataclass(frozen=True, slots=True)
class ReadableRange:
    """The readable offsets of a partition: from `first` up to but not including `end`."""

    partition: TopicPartition
    first: int
    end: int
    files: tuple["LakeFile", ...] = ()
    live: bool = True

    def slices(self, start: int, end: int, options: ReadOptions) -> Iterator[ReadSlice]:
        """Yield the slices of a range for tasks. Entries that no longer exist are reported."""
        for first, after in cut(start, end, options.rows_per_slice):
            parts = tuple(self._parts(first, after, options.fail_on_data_loss))
            if parts:
                yield ReadSlice(
                    self.partition, parts, options.not_before, options.before, options.fail_on_data_loss
                )

    def _parts(self, start: int, end: int, fail: bool) -> Iterator[Part]:
        at = start
        for file in self.files:
            if file.end <= at or file.first >= end:
                continue
            yield from self._stored(at, file.first, fail)
            at = max(at, file.first)
            yield Part(at, min(file.end, end), file)
            at = min(file.end, end)
        yield from self._stored(at, end, fail)

    def _stored(self, start: int, end: int, fail: bool) -> Iterator[Part]:
        """Yield the part that the lake does not have."""
        if start >= end:
            return
        kept = min(max(start, self.partition.first), end) if self.live else end
        if kept > start:
            reason = "the lake does not have them"
            if self.live:
                reason = f"retention has come to {self.partition.first}"
            lost(
                f"of {self.partition}, the entries from offset {start} to {kept - 1} are gone: {reason}",
                fail=fail,
            )
        if kept < end:
            yield Part(kept, end)

    def start(self, stores: Stores, options: ReadOptions) -> int:
        """Return the first offset that is to be read."""
        if options.not_before is not None:
            return self.first_not_before(stores, options.not_before)
        return self.chosen(options.start, self.end if options.start == "latest" else self.first)

    def chosen(self, offsets: Edge | Offsets, otherwise: int) -> int:
        """Return the offset that is given for this partition."""
        if isinstance(offsets, str):
            return otherwise
        return offsets.get(self.partition.topic, {}).get(self.partition.partition, otherwise)

    def first_not_before(self, stores: Stores, time: int) -> int:
        """Return the offset of the first entry that is not before a time or, without one, the end."""
        live = times.first_not_before(stores, self.partition, time) if self.live else self.end
        return min(live, _first_in_lake(self.files, time, self.end))

    def end_before(self, stores: Stores, time: int) -> int:
        """Return an offset after the last entry that is before a time: in the store, exactly the next one."""
        live = times.end_before(stores, self.partition, time) if self.live else self.first
        return max(live, *(file.end for file in self.files if file.first_time < time), self.first)


def ranges(stores: Stores, options: ReadOptions) -> list[ReadableRange]:
    """Return the readable ranges of existing partitions that the options name, by topic and number."""
    # The store first: entries that retention drops between the two reads are in the lake by then.
    partitions = look(stores, options)
    if options.tier == "live":
        return [ReadableRange(p, p.first, p.next) for p in partitions]
    files = _files(stores, options, partitions)
    return [_joined(p, tuple(files.get(p.partition_id, ())), live=options.tier == "all") for p in partitions]


def _joined(partition: TopicPartition, files: tuple["LakeFile", ...], *, live: bool) -> ReadableRange:
    firsts = [file.first for file in files[:1]] + [partition.first] * (live or not files)
    ends = [file.end for file in files[-1:]] + [partition.next if live else partition.first] * (
        live or not files
    )
    return ReadableRange(partition, min(firsts), max(ends), files, live)


def _files(
    stores: Stores, options: ReadOptions, partitions: list[TopicPartition]
) -> dict[int, list["LakeFile"]]:
    from nuncius.pipeline.lake.table import Lake

    location = options.lake
    if location is None:
        rows = stores.rows(stores.main, _LAKE)
        location = rows[0]["location"] if rows else None
    if location is None and options.tier == "lake":
        raise InvalidOption(
            "this store has no lake yet: archive a topic first, or say where it is (option 'lake')"
        )
    found: dict[int, list[LakeFile]] = {}
    if location is not None:
        lake = Lake(location)
        if options.tier == "lake" or lake.exists():
            for file in lake.files([partition.partition_id for partition in partitions]):
                found.setdefault(file.partition_id, []).append(file)
    return found


def _first_in_lake(files: tuple["LakeFile", ...], time: int, otherwise: int) -> int:
    from nuncius.pipeline.lake.files import read

    for file in files:
        if file.last_time >= time:
            for batch in read(file, file.first, file.end, ["offset", "time"]):
                found = in_time(batch, 1, time, None)
                if found.num_rows:
                    return int(found.column(0)[0].as_py())
    return otherwise
