"""Reading a range of a partition in chunks, on an executor.

A chunk is fetched as a whole, in its own transaction, which ends before Spark sees the first row: slow
consumers do not block anything in the store, vacuum included. A chunk ends after a number of rows, bytes or
tenths of a second, whichever comes first, so large entries do not fill the memory.

Offsets are dense. A gap between rows means that entries are missing, which is always reported. A broken
connection is reopened, and the range continues after the last chunk that was passed on.

Topics often have no keys, no headers or no publishers, and columns of nulls are a third of the work. So a
column that is null throughout a chunk is not fetched with the next one, which selects only rows where it is
null. If that leaves a gap, the chunk is fetched again with all columns, and so are the following chunks.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from nuncius.pipeline.catalogue import TopicPartition
from nuncius.pipeline.link import BROKEN, ArrowLink, linked, unlink
from nuncius.pipeline.patience import patiently
from nuncius.pipeline.source.columns import NULLABLE, OFFSET, SQL
from nuncius.pipeline.source.loss import lost
from nuncius.store.queries import query

CHUNK_ROWS = 50_000
CHUNK_BYTES = 32 << 20
CHUNK_SECONDS = 0.4

_ENTRIES = query("source", "entries")


@dataclass(slots=True)
class ReadChunk:
    """The rows that one transaction read; `cut` if a limit ended it."""

    link: ArrowLink
    names: list[str]
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    cut: bool = False

    def is_dense(self, at: int, upto: int) -> bool:
        """Return whether all offsets from `at` on are there, up to `upto` or to where the chunk was cut."""
        if not self.batches:
            return at == upto
        last = self.batches[-1].column(0)[-1].as_py()
        return last - at + 1 == self.rows and (self.cut or last == upto - 1)

    def absent(self) -> set[str]:
        """Return the columns that contain only nulls."""
        return {
            name
            for place, name in enumerate(self.names, 1)
            if name in NULLABLE and all(b.column(place).null_count == b.num_rows for b in self.batches)
        }


def read(
    partition: TopicPartition, start: int, end: int, names: Sequence[str], *, fail_on_data_loss: bool
) -> Iterator[tuple[ReadChunk, pa.RecordBatch]]:
    """Read the rows of a range in order: batches of the offset and the chunk's columns, which are the named
    ones without some that are null."""
    at, rows = start, CHUNK_ROWS
    absent: set[str] = set()
    guessing = True
    while at < end:
        upto = min(at + rows, end)
        wanted = partial(_fetch, partition, at, upto, names, absent)
        chunk = patiently(wanted, BROKEN, partial(unlink, partition.dsn))
        if absent and not chunk.is_dense(at, upto):
            guessing, absent = False, set()
            continue
        absent |= chunk.absent() if guessing else set()
        for batch in chunk.batches:
            at = _checked(batch, partition, at, fail_on_data_loss)
            yield chunk, batch
        if chunk.cut:
            rows = chunk.rows
        else:
            if at < upto:
                _gone(partition, at, upto, fail_on_data_loss)
            at = upto
            if chunk.bytes < CHUNK_BYTES // 4:
                rows = min(rows * 2, CHUNK_ROWS)


def _fetch(
    partition: TopicPartition, at: int, upto: int, names: Sequence[str], absent: set[str]
) -> ReadChunk:
    link = linked(partition.dsn)
    chunk = ReadChunk(link, [name for name in names if name not in absent])
    statement = _ENTRIES.format(
        columns=", ".join([OFFSET, *(SQL[name] for name in chunk.names)]),
        partition_id=partition.partition_id,
        first=at,
        end=upto,
        without="".join(f" and {NULLABLE[name]} is null" for name in sorted(absent)),
    )
    started = time.monotonic()
    with link.cursor() as cursor:
        cursor.execute(statement)
        reader = cursor.fetch_record_batch()
        for batch in reader:
            chunk.batches.append(batch)
            chunk.rows += batch.num_rows
            chunk.bytes += batch.nbytes
            if chunk.bytes >= CHUNK_BYTES or time.monotonic() - started >= CHUNK_SECONDS:
                chunk.cut = True
                cursor.adbc_cancel()
                with suppress(OSError):  # the error of the cancelled statement
                    for _ in reader:
                        pass
                break
    return chunk


def _checked(batch: pa.RecordBatch, partition: TopicPartition, at: int, fail: bool) -> int:
    """Check that a batch misses no offsets. Return the offset after it."""
    offsets = batch.column(0)
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if first != at or last - first != batch.num_rows - 1:
        _gone(partition, at, last + 1, fail, here=batch.num_rows)
    return int(last) + 1


def _gone(partition: TopicPartition, start: int, end: int, fail: bool, here: int = 0) -> None:
    lost(
        f"of {partition}, {end - start - here} of the entries from offset {start} to {end - 1} are gone: "
        "retention dropped them, or the topic was deleted, after this read was planned",
        fail=fail,
    )
