"""Maintenance of the lake: small files are merged, old ones are removed.

Both may run during archiving and reading. A reader stays with the version at which it began, whose files are
kept for a while after they leave the table.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, groupby, takewhile

from nuncius.pipeline.lake import writer
from nuncius.pipeline.lake.files import STORED, LakeFile, read
from nuncius.pipeline.lake.table import Lake

GRACE = timedelta(days=1)
# Merged at a time: a killed run has to repeat no more than that.
STEP_BYTES = 1 << 30
_UNLIMITED = 1 << 62

Group = Sequence[LakeFile]


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of `compact`: numbers and sizes of files before and after."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


@dataclass(frozen=True, slots=True)
class Expired:
    """The result of `expire`: entries, files and bytes that left the table, and files that were deleted."""

    entries: int = 0
    files: int = 0
    bytes: int = 0
    swept: int = 0


def compact(
    lake: Lake, *, file_rows: int = writer.FILE_ROWS, file_bytes: int = writer.FILE_BYTES
) -> Compacted:
    """Merge neighbouring small files of a partition up to a good size. Readers get the same entries before
    and after, in the same order."""
    lake.refresh()
    before: list[LakeFile] = []
    after: list[LakeFile] = []
    groups = _groups(lake.files(), file_rows, file_bytes)
    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="nuncius-compact") as threads:
        for step in _steps(groups):
            old, new = _swap(lake, list(zip(step, threads.map(_merge, step), strict=True)))
            before += old
            after += new
    return Compacted(len(before), len(after), _bytes(before), _bytes(after))


def expire(lake: Lake, older_than: timedelta, *, grace: timedelta = GRACE) -> Expired:
    """Remove files all of whose entries are older than that, from the front of each partition, and delete
    files that left the table longer than `grace` ago. So an entry stays as long as its file has younger ones.
    The end of a partition is known even when all its entries are gone."""
    lake.refresh()
    limit = time.time_ns() // 1000 - older_than // timedelta(microseconds=1)
    while True:
        old, emptied = _old(lake.files(), limit)
        marks = lake.marks()
        if any(marks.get(partition_id) != end for partition_id, end in emptied.items()):
            lake.mark(emptied)
        elif not old or lake.replace(old, []):
            break
    swept = lake.vacuum(grace)
    return Expired(sum(file.rows for file in old), len(old), _bytes(old), len(swept))


def _groups(files: Iterable[LakeFile], file_rows: int, file_bytes: int) -> Iterator[list[LakeFile]]:
    """Group files to merge. A file of half the size is left alone, or each new entry would cause the large
    file before it to be rewritten."""
    group: list[LakeFile] = []
    size = 0
    for file in files:
        is_small = file.rows * 2 < file_rows and file.size * 2 < file_bytes
        fits = (
            bool(group)
            and (group[-1].partition_id, group[-1].end) == (file.partition_id, file.first)
            and file.end - group[0].first <= file_rows
            and size + file.size <= file_bytes
        )
        if not (is_small and fits):
            if len(group) > 1:
                yield group
            group, size = [], 0
        if is_small:
            group.append(file)
            size += file.size
    if len(group) > 1:
        yield group


def _steps(groups: Iterable[Group]) -> Iterator[list[Group]]:
    step: list[Group] = []
    for group in groups:
        step.append(group)
        if _bytes(chain.from_iterable(step)) >= STEP_BYTES:
            yield step
            step = []
    if step:
        yield step


def _merge(group: Group) -> Group:
    first = group[0]
    target = writer.FileTarget(
        first.location, first.topic, first.partition, first.partition_id, _UNLIMITED, _UNLIMITED
    )
    batches = (batch for file in group for batch in read(file, file.first, file.end, STORED.names))
    return list(writer.write(target, batches))


def _swap(lake: Lake, merged: Sequence[tuple[Group, Group]]) -> tuple[list[LakeFile], list[LakeFile]]:
    """Replace files by the merged ones, except where the old files have been removed meanwhile."""
    while True:
        there = {file.path for file in lake.files()}
        valid = [(old, new) for old, new in merged if there.issuperset(file.path for file in old)]
        before = [file for old, _ in valid for file in old]
        after = [file for _, new in valid for file in new]
        if not valid or lake.replace(before, after):
            return before, after


def _old(files: Iterable[LakeFile], limit: int) -> tuple[list[LakeFile], dict[int, int]]:
    """Return the files to remove, and the ends of partitions that lose all files."""
    old: list[LakeFile] = []
    emptied: dict[int, int] = {}
    for partition_id, of_partition in groupby(files, key=lambda file: file.partition_id):
        everything = list(of_partition)
        going = list(takewhile(lambda file: file.last_time < limit, everything))
        old += going
        if len(going) == len(everything):
            emptied[partition_id] = everything[-1].end
    return old, emptied


def _bytes(files: Iterable[LakeFile]) -> int:
    return sum(file.size for file in files)
