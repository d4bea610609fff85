"""Writing files of the lake, in the process that has the entries.

Names are never reused, so files of failed attempts do no harm: the table does not refer to them, and `expire`
deletes them.
"""

import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nuncius.pipeline.errors import PipelineError
from nuncius.pipeline.lake import storage
from nuncius.pipeline.lake.files import STORED, LakeFile

DIRECTORY = "entries"
FILE_ROWS = 1_000_000
FILE_BYTES = 128 << 20
# A reader of a few entries reads a whole group; a writer holds one in memory.
GROUP_ROWS = 100_000
GROUP_BYTES = 32 << 20


class OutOfOrder(PipelineError):
    """Entries are not in the order of their offsets."""


@dataclass(frozen=True, slots=True)
class FileTarget:
    """The partition that is written, its location, and the size of files."""

    location: str
    topic: str
    partition: int
    partition_id: int
    file_rows: int = FILE_ROWS
    file_bytes: int = FILE_BYTES


def write(target: FileTarget, batches: Iterable[pa.RecordBatch]) -> Iterator[LakeFile]:
    """Write entries of one partition, which are in order and have at least the stored columns. Yield each
    file once it is durable. After a missing entry, begin a new file."""
    file: _File | None = None
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            first = batch.column("offset")[0].as_py()
            if file is not None and (file.is_full or first > file.end):
                done, file = file.finish(), None
                yield done
            if file is None:
                file = _File(target, first)
            file.add(batch)
        if file is not None:
            done, file = file.finish(), None
            yield done
    finally:
        if file is not None:
            file.discard()


class _File:
    def __init__(self, target: FileTarget, first: int) -> None:
        self.target = target
        self.first = self.end = first
        self.path = f"{DIRECTORY}/{target.partition_id}-{first:020}-{uuid.uuid4().hex}.parquet"
        self._times = pa.array([], pa.int64())  # of the earliest and the latest entry
        self._group: list[pa.RecordBatch] = []
        self._group_rows = self._group_bytes = 0
        self._files = storage.filesystem(target.location)
        storage.make_directory(target.location, DIRECTORY)
        self._output = self._files.open_output_stream(self.path)
        self._parquet = pq.ParquetWriter(
            self._output,
            STORED,
            compression="zstd",
            use_dictionary=["key", "publisher", "headers.key_value.key", "headers.key_value.value"],
            column_encoding={"offset": "DELTA_BINARY_PACKED", "time": "DELTA_BINARY_PACKED"},
            write_statistics=["offset", "time"],
        )

    def add(self, batch: pa.RecordBatch) -> None:
        offsets = batch.column("offset")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if first != self.end or last - first + 1 != batch.num_rows:
            raise OutOfOrder(
                f"partition {self.target.partition} of topic {self.target.topic!r}: "
                f"after offset {self.end - 1} came {batch.num_rows} entries from {first} to {last}"
            )
        self.end = last + 1
        self._times = _span(pa.concat_arrays([self._times, batch.column("time").cast(pa.int64())]))
        stored = [batch.column(column.name).cast(column.type) for column in STORED]
        self._group.append(pa.RecordBatch.from_arrays(stored, schema=STORED))
        self._group_rows += batch.num_rows
        self._group_bytes += batch.nbytes
        if self._group_rows >= GROUP_ROWS or self._group_bytes >= GROUP_BYTES:
            self._write_group()

    @property
    def is_full(self) -> bool:
        rows, size = self.end - self.first, self._output.tell() + self._group_bytes
        return rows >= self.target.file_rows or bool(size >= self.target.file_bytes)

    def finish(self) -> LakeFile:
        self._write_group()
        self._parquet.close()
        size = self._output.tell()
        self._output.close()
        target = self.target
        storage.make_durable(target.location, self.path)
        return LakeFile(
            self.path,
            target.topic,
            target.partition,
            target.partition_id,
            self.first,
            self.end,
            self._times[0].as_py(),
            self._times[1].as_py(),
            size,
            target.location,
        )

    def discard(self) -> None:
        """Close and delete the unfinished file as far as possible."""
        for act in (self._parquet.close, self._output.close, lambda: self._files.delete_file(self.path)):
            with suppress(OSError):
                act()

    def _write_group(self) -> None:
        if self._group:
            self._parquet.write_table(pa.Table.from_batches(self._group), row_group_size=self._group_rows)
            self._group, self._group_rows, self._group_bytes = [], 0, 0


def _span(times: pa.Array) -> pa.Array:
    """Return the earliest and the latest time. If a clock was set back, these are not the first and last."""
    found = pc.min_max(times)
    return pa.array([found["min"].as_py(), found["max"].as_py()], pa.int64())
