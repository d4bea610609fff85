"""Writing to topics and queues: `df.write.format("nuncius").mode("append")` and `df.writeStream`.

Guarantees:

* A stream writes every row once, over retries of tasks, restarts and replays, for as long as it keeps its
  checkpoint. A write with options `name` and `batch` (an increasing number) is stored once, too, however
  often it is repeated; a write without them is stored once for each call.
* A task's rows are one transaction, up to `rowsPerTransaction` of them or about 32 MB. Larger tasks use
  several, and if repeated must have their rows in the same order; in smaller tasks the order does not matter.
  In both cases a repeated batch must be divided into the same tasks: reads of our source are, aggregations
  are as long as the number of shuffle partitions stays the same. A repetition that visibly differs fails.
* A batch as a whole is not a transaction: readers may see the rows of one task before those of another.
* Rows with one key keep their order, and so do rows of a task without a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from nuncius.pipeline.sink import options as sink_options
from nuncius.pipeline.sink import publisher as sink_publisher
from nuncius.pipeline.sink.link import link
from nuncius.pipeline.sink.options import WriteTarget
from nuncius.pipeline.sink.publisher import SinkBatch, TaskPublisher

if TYPE_CHECKING:
    import pyarrow as pa

    from nuncius.store.driver import Connection


@dataclass
class Written(WriterCommitMessage):
    """The result of a task."""

    batch: SinkBatch
    rows: int
    known: int
    """Number of rows that had been written before."""


class _Writer:
    """The parts that writers of tables and of streams share."""

    streaming: bool

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self.target = sink_options.target(options, schema, overwrite)
        self.label = sink_options.label(options, streaming=self.streaming)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        batch_of = sink_publisher.of_stream if self.streaming else sink_publisher.of_write
        return write(self.target, batch_of(self.label, context), context.partitionId(), iterator)


class BatchWriter(_Writer, DataSourceArrowWriter):
    streaming = False

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        finish(self.target, messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Overwriting is refused: results in output mode `update` or `complete` cannot be appended to a log."""

    streaming = True

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        finish(self.target, messages)


def write(target: WriteTarget, batch: SinkBatch, task: int, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write the rows of one task."""
    from nuncius.pipeline.sink.queues import QueueWriter
    from nuncius.pipeline.sink.rows import Rows, transactions
    from nuncius.pipeline.sink.topics import TopicWriter

    sink = TopicWriter(target) if target.kind == "topic" else QueueWriter(target)
    store = link(target.dsn)
    publisher: TaskPublisher | None = None

    async def begin(connection: Connection) -> TaskPublisher | None:
        finished = await batch.is_finished(connection)
        return None if finished else await TaskPublisher.ensure(connection, batch, task)

    portions = transactions(batches, target.rows, sink_options.BYTES)
    for table, last in portions:
        publisher = publisher or store.run(begin)
        if publisher is None:
            return Written(batch, 0, table.num_rows + sum(rest.num_rows for rest, _ in portions))
        rows = Rows(table, target.kind, target.name)
        store.run(partial(sink.write, rows=rows, publisher=publisher, last=last))
    return Written(batch, publisher.written if publisher else 0, publisher.known if publisher else 0)


def finish(target: WriteTarget, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Record that a batch is complete. Spark still repeats it if it dies before its own record."""
    done = [message for message in messages if isinstance(message, Written)]
    if done:
        link(target.dsn).run(done[0].batch.finish)
