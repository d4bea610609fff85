"""A slice is what one task reads: a range of offsets of one partition.

Where the range begins and ends depends on nothing but the range that is cut, so a micro-batch that is run
again has the same tasks with the same rows, whether they come from the store or, by then, from the lake.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from nuncius.pipeline.catalogue import Partition
from nuncius.pipeline.source import chunks
from nuncius.pipeline.source.columns import Shape, in_time
from nuncius.pipeline.source.loss import lost

if TYPE_CHECKING:
    from nuncius.pipeline.lake.files import LakeFile


@dataclass(frozen=True)
class Part:
    """Offsets of a partition that lie together: in a file of the lake or, without one, in the store."""

    start: int
    end: int
    file: "LakeFile | None" = None


@dataclass(frozen=True)
class Slice(InputPartition):
    """What one task reads. Of its entries, only those in the range of times are wanted."""

    partition: Partition
    parts: tuple[Part, ...]
    not_before: int | None = None
    before: int | None = None
    fail_on_data_loss: bool = True

    @property
    def is_timed(self) -> bool:
        return self.not_before is not None or self.before is not None

    def kept(self, batch: pa.RecordBatch, column: int) -> pa.RecordBatch:
        """The rows of a batch that are in the range of times; that column has them."""
        return in_time(batch, column, self.not_before, self.before)


def cut(start: int, end: int, rows: int) -> Iterator[tuple[int, int]]:
    """The ranges of at most so many rows that make up a range."""
    for first in range(start, end, rows):
        yield first, min(first + rows, end)


def read(shape: Shape, wanted: Slice) -> Iterator[pa.RecordBatch]:
    """The entries of a slice in the declared schema, in order."""
    for part in wanted.parts:
        if part.file is None:
            yield from _from_store(shape, wanted, part)
        else:
            yield from _from_lake(shape, wanted, part, part.file)


def _from_store(shape: Shape, wanted: Slice, part: Part) -> Iterator[pa.RecordBatch]:
    partition, fail = wanted.partition, wanted.fail_on_data_loss
    found = chunks.read(partition, part.start, part.end, shape.names, fail_on_data_loss=fail)
    for chunk, batch in found:
        kept = wanted.kept(batch, 1 + chunk.names.index("time")) if wanted.is_timed else batch
        if kept.num_rows:
            yield shape.from_store(kept, chunk.names, partition, chunk.link.names)


def _from_lake(shape: Shape, wanted: Slice, part: Part, file: "LakeFile") -> Iterator[pa.RecordBatch]:
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
