"""The publishers and counts of a task's rows, which keep rows from being stored twice.

The rows of task 3 in batch 7 of a sink are counts 7 * 2^32 + 1, 7 * 2^32 + 2, ... of its own publisher. If
the task or the whole batch is repeated, the store recognises the counts. It cannot recognise that the rows
with these counts have changed; so a repetition that looks different from the original is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark import TaskContext

from nuncius.pipeline.errors import InvalidOption, ReplayDiffers
from nuncius.pipeline.sink.options import Label
from nuncius.store.driver import Connection
from nuncius.store.queries import procedure, query

# Properties with which Spark tells a task its streaming query. The id is stored in the query's checkpoint.
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"

# A sink is a publisher, too. It counts completed batches.
_FINISHED = query("sink", "finished")
_FINISH = query("sink", "finish")


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """One batch of one sink."""

    sink: str
    number: int
    named: bool
    """True if the batch can be repeated. A batch without a name never is."""

    async def is_finished(self, connection: Connection) -> bool:
        """Return whether this batch was completed before, with any division into tasks."""
        if not self.named:
            return False
        finished: int = await connection.fetchval(_FINISHED, self.sink) or 0
        if self.number + 1 < finished:
            raise ReplayDiffers(self.went_back(finished - 1))
        return self.number + 1 == finished

    async def finish(self, connection: Connection) -> None:
        if self.named:
            await connection.execute(_FINISH, self.sink, self.number + 1)

    def went_back(self, last: int) -> str:
        return (
            f"{self.sink!r} has written batch {last} and cannot tell what of batch {self.number} it has: "
            "the numbers of a sink's batches go up; a checkpoint that was put back, or a sink that is to "
            "start again, needs another name"
        )


def of_stream(label: Label, context: TaskContext) -> SinkBatch:
    """Return the batch that a streaming query writes. A new checkpoint is a new query and writes under a new
    name, so the old query's counts do not suppress its rows."""
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if not query or not batch:
        raise InvalidOption("Spark does not say which query and batch this is: write with foreachBatch")
    return SinkBatch(f"spark/{label.name or 'stream'}/{query}", int(batch), named=True)


def of_write(label: Label, context: TaskContext) -> SinkBatch:
    """Return the batch of a plain write. Inside foreachBatch the query is part of its name, as above."""
    if label.name is None:
        return SinkBatch(f"spark/{label.nonce}", 0, named=False)
    query = context.getLocalProperty(_QUERY)
    batch = label.batch
    if batch is None and query:
        batch = int(context.getLocalProperty(_BATCH) or 0)
    if batch is None:
        raise InvalidOption(
            "which write of this sink is it? Give option 'batch', a number that goes up, besides 'name'"
        )
    return SinkBatch(f"spark/{label.name}/{query}" if query else f"spark/{label.name}", batch, named=True)


@dataclass(slots=True)
class TaskPublisher:
    """The publisher of one task of a batch."""

    batch: SinkBatch
    task: int
    name: str
    publisher_id: int
    portion: int = 0
    """Transactions before this one."""
    sent: dict[str, int] = field(default_factory=dict)
    """Rows of earlier transactions by topic or queue."""
    written: int = 0
    known: int = 0

    @classmethod
    async def ensure(cls, connection: Connection, batch: SinkBatch, task: int) -> TaskPublisher:
        name = f"{batch.sink}/{task}"
        ensure = procedure("ensure_publishers", 2)
        return cls(batch, task, name, await connection.fetchval(ensure, [name], batch.named))

    @property
    def base(self) -> int:
        return self.batch.number << 32

    def count(self, name: str) -> int:
        """Return the count of the next row for this topic or queue."""
        return self.base + self.sent.get(name, 0) + 1

    async def check(
        self, connection: Connection, kind: str, name: str, rows: int, known: int, *, last: bool
    ) -> None:
        """Refuse a repetition that differs from the original. `known` of these rows were written before."""
        if not known:
            return
        stored: int = await connection.fetchval(procedure("last_count", 3), self.name, kind, name)
        if stored >> 32 > self.batch.number:
            raise ReplayDiffers(self.batch.went_back(stored >> 32))
        earlier = self.sent.get(name, 0)
        before = stored - self.base if known == rows else earlier + known
        now = earlier + rows
        alone = last and self.portion == 0
        if (alone and known < rows) or (last and before > now):
            raise ReplayDiffers(
                f"task {self.task} of batch {self.batch.number} of {self.batch.sink!r} has {now} rows for "
                f"{name!r}, and had {before} when it was written before: a batch that is repeated must be "
                "divided into the same tasks with the same rows; do not change the number of partitions or "
                "'rowsPerTransaction' before it is complete"
            )

    def advance(self, rows: dict[str, int], known: int) -> None:
        """Record that a transaction is committed."""
        for name, number in rows.items():
            self.sent[name] = self.sent.get(name, 0) + number
        self.portion += 1
        self.written += sum(rows.values()) - known
        self.known += known
