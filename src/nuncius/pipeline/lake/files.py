"""One file of the lake.

A file holds consecutive entries of one partition, without a gap. So the row of an offset follows from the
first offset, and the columns that are the same in every row are not in the file but in the table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from nuncius.pipeline.lake import storage
from nuncius.pipeline.source.schema import EXTRA, SCHEMA

COLUMNS: pa.Schema = to_arrow_schema(StructType([*SCHEMA, *EXTRA]), timezone="UTC")
"""The columns of the table, in Arrow's types, as the source has them."""
CONSTANT = ("topic", "partition", "partition_id")
"""The columns that are constant in a file."""
STORED: pa.Schema = pa.schema([column for column in COLUMNS if column.name not in CONSTANT])
"""The columns that are stored in a file."""


@dataclass(frozen=True, slots=True)
class LakeFile:
    path: str
    """The path within the lake."""
    topic: str
    partition: int
    partition_id: int
    first: int
    end: int
    """The offset after the last entry."""
    first_time: int
    """Microseconds since 1970 of the earliest entry."""
    last_time: int
    size: int = 0
    """The size in bytes."""
    location: str = ""
    """The location of the lake."""

    @property
    def rows(self) -> int:
        return self.end - self.first


def read(file: LakeFile, start: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read the entries of a file from `start` up to but not including `end`, in order."""
    start, end = max(start, file.first), min(end, file.end)
    if start >= end:
        return
    schema = pa.schema([COLUMNS.field(name) for name in columns])
    # Read a column even if none is requested: it gives the number of rows.
    stored = [name for name in columns if name not in CONSTANT] or ["offset"]
    files = storage.filesystem(file.location)
    with files.open_input_file(file.path) as opened:
        parquet = pq.ParquetFile(opened)
        groups, skipped = _groups(parquet.metadata, start - file.first, end - file.first)
        position = file.first + skipped
        for batch in parquet.iter_batches(row_groups=groups, columns=stored):
            after = position + batch.num_rows
            if after > start and position < end:
                wanted = batch.slice(max(start - position, 0), min(end, after) - max(start, position))
                yield _with_constants(wanted, file, schema)
            position = after


def _groups(metadata: pq.FileMetaData, start: int, end: int) -> tuple[list[int], int]:
    """Return the row groups that hold rows `start` to `end`, and the number of rows before them."""
    wanted, skipped, row = [], 0, 0
    for group in range(metadata.num_row_groups):
        after = row + metadata.row_group(group).num_rows
        if after <= start:
            skipped = after
        elif row < end:
            wanted.append(group)
        row = after
    return wanted, skipped


def _with_constants(batch: pa.RecordBatch, file: LakeFile, schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for column in schema:
        if column.name in CONSTANT:
            value = pa.scalar(getattr(file, column.name), column.type)
            arrays.append(pa.repeat(value, batch.num_rows))
        else:
            array = batch.column(column.name)
            arrays.append(array if array.type == column.type else array.cast(column.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
