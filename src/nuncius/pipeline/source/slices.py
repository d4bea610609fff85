"""Slices: the ranges of offsets of one partition that single tasks read.

The limits of slices depend only on the range that is cut, so a repeated micro-batch has the same tasks with
the same rows, whether they come from the store or, by then, from the lake.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from nuncius.pipeline.catalogue import TopicPartition
from nuncius.pipeline.source import chunks
from nuncius.pipeline.source.columns import RowShape, in_time
from nuncius.pipeline.source.loss import lost

if TYPE_CHECKING:
    from nuncius.pipeline.lake.files import LakeFile


@dataclass(frozen=True)
class Part:
    """Consecutive offsets of a partition in one place: a file of the lake or, without one, the store."""

    start: int
    end: int
    file: "LakeFile | None" = None


@dataclass(frozen=True)
class ReadSlice(InputPartition):
    """The entries that one task reads, limited to a range of times."""

    partition: TopicPartition
    parts: tuple[Part, ...]
    not_before: int | None = None
    before: int | None = None
    fail_on_data_loss: bool = True

    @property
    def is_timed(self) -> bool:
        return self.not_before is not None or self.before is not None

    def kept(self, batch: pa.RecordBatch, column: int) -> pa.RecordBatch:
        """Return the rows of a batch whose time, in that column, is in the range."""
        return in_time(batch, column, self.not_before, self.before)


def cut(start: int, end: int, rows: int) -> Iterator[tuple[int, int]]:
    """Cut a range into ranges of at most so many rows."""
    for first in range(start, end, rows):
        yield first, min(first + rows, end)


def read(shape: RowShape, wanted: ReadSlice) -> Iterator[pa.RecordBatch]:
    """Read the entries of a slice in order, in the declared schema."""
    for part in wanted.parts:
        if part.file is None:
            yield from _from_store(shape, wanted, part)
        else:
            yield from _from_lake(shape, wanted, part, part.file)


def _from_store(shape: RowShape, wanted: ReadSlice, part: Part) -> Iterator[pa.RecordBatch]:
    partition, fail = wanted.partition, wanted.fail_on_data_loss
    found = chunks.read(partition, part.start, part.end, shape.names, fail_on_data_loss=fail)
    for chunk, batch in found:
        kept = wanted.kept(batch, 1 + chunk.names.index("time")) if wanted.is_timed else batch
        if kept.num_rows:
            yield shape.from_store(kept, chunk.names, partition, chunk.link.names)


def _from_lake(shape: RowShape, wanted: ReadSlice, part: Part, file: "LakeFile") -> Iterator[pa.RecordBatch]:
    from nuncius.pipeline.lake import files

    rows = 0
    for batch in files.read(file, part.start, part.end, shape.lake):
        rows += batch.num_rows
        kept = wanted.kept(batch, shape.lake.index("time")) if wanted.is_timed else batch
        if kept.num_rows:
            yield shape.from_lake(kept)
    if rows != part.end - part.start:
        lost(
            f"of {wanted.partition}, {part.end - part.start - rows} entries from offset {part.start} to "
            f"{part.end - 1} are not in the file of the lake that should have them ({file.path})",
            fail=wanted.fail_on_data_loss,
        )
