"""Stretches of entries to archive: divided into rounds and into pieces for tasks, and compared with the files
that the tasks wrote."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nuncius.pipeline.catalogue import TopicPartition
from nuncius.pipeline.lake.files import LakeFile
from nuncius.pipeline.source import positions, slices

# For smaller pieces, the overhead of a task exceeds the gain of parallel work.
SMALLEST_PIECE = 50_000


@dataclass(frozen=True, slots=True)
class LakeStretch:
    """Entries of a partition, from one offset up to but not including another."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.start


def within(stretches: Iterable[LakeStretch], ends: Mapping[int, int]) -> list[LakeStretch]:
    """Limit stretches to offsets before the given ends of their partitions."""
    limits = [(stretch, ends.get(stretch.partition.partition_id, 0)) for stretch in stretches]
    return [replace(stretch, end=min(stretch.end, end)) for stretch, end in limits if stretch.start < end]


def share(stretches: Sequence[LakeStretch], rows: int) -> list[LakeStretch]:
    """Return the beginnings of stretches, with so many rows in all, divided fairly."""
    shares = positions.share(rows, {stretch.partition.place: stretch.rows for stretch in stretches})
    parts = [(stretch, shares[stretch.partition.place]) for stretch in stretches]
    return [replace(stretch, end=stretch.start + part) for stretch, part in parts if part]


def cut(stretches: Sequence[LakeStretch], workers: int) -> list[LakeStretch]:
    """Cut stretches into pieces that keep all workers busy."""
    size = max(SMALLEST_PIECE, -(-sum(stretch.rows for stretch in stretches) // workers))
    return [
        replace(stretch, start=start, end=end)
        for stretch in stretches
        for start, end in slices.cut(stretch.start, stretch.end, size)
    ]


def without(stretches: Iterable[LakeStretch], files: Iterable[LakeFile]) -> list[LakeStretch]:
    """Return the parts of stretches that are in none of the files."""
    held: dict[int, list[LakeFile]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.first):
        held[file.partition_id].append(file)
    missing = []
    for stretch in stretches:
        at = stretch.start
        for file in held[stretch.partition.partition_id]:
            if at < file.first:
                missing.append(replace(stretch, start=at, end=file.first))
            at = file.end
        if at < stretch.end:
            missing.append(replace(stretch, start=at))
    return missing
