"""Archiving topics in the lake, round by round.

There is no checkpoint that could be lost. Offsets are dense and entries never change, so the lake's own
offsets tell which entries are missing. A round adds missing entries: tasks write files, then one commit adds
them all. A crash leaves a round committed, or nothing of it. After the commit the lake, which is a subscriber
of its topics, confirms the entries; until then retention keeps them.

Tasks read like our source, but write the entries to files at once, not through Spark.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from nuncius.pipeline.catalogue import Stores, TopicPartition, expect, look
from nuncius.pipeline.errors import DataLoss, InvalidOption
from nuncius.pipeline.lake import storage, writer
from nuncius.pipeline.lake.files import CONSTANT, LakeFile
from nuncius.pipeline.lake.stretches import LakeStretch, cut, share, without
from nuncius.pipeline.lake.table import Lake
from nuncius.pipeline.source import slices
from nuncius.pipeline.source.columns import RowShape
from nuncius.pipeline.source.options import ReadOptions
from nuncius.pipeline.source.schema import EXTRA, SCHEMA
from nuncius.pipeline.source.slices import Part, ReadSlice
from nuncius.pipeline.source.subscription import StreamSubscription

JOB = "archive"
_READ = StructType([column for column in [*SCHEMA, *EXTRA] if column.name not in CONSTANT])


class Archive:
    """The topics that are archived in a lake."""

    def __init__(self, spark: SparkSession, stores: Stores, options: ReadOptions, lake: Lake) -> None:
        self._spark = spark
        self._stores = stores
        self._options = options
        self._lake = lake
        self._subscription = StreamSubscription(stores, JOB, hold_retention=True, is_job=True)
        self._followed: set[int] = set()

    def look(self) -> list[LakeStretch]:
        """Return the entries that the lake lacks. From now on, retention keeps them."""
        there = look(self._stores, self._options)
        if not self._followed:
            expect(self._options, there)
        topics = {partition.topic_id for partition in there}
        if not topics <= self._followed:
            self._subscription.follow(topics, "earliest")
            self._followed |= topics
            there = look(self._stores, self._options)  # retention may have dropped entries before it was held
        self._lake.refresh()
        self._confirm(there)  # entries that an interrupted run has committed but not confirmed
        return self._pending(there)

    def waiting(self) -> int:
        """Return the number of stored entries that the lake lacks, as of the lake's last refresh."""
        return sum(stretch.rows for stretch in self._pending(look(self._stores, self._options)))

    def round(self, pending: Iterable[LakeStretch], rows: int) -> list[LakeFile]:
        """Archive so many pending rows. Raise Overtaken if another run has archived since the last look.
        Return the added files."""
        rounds = self._lake.rounds
        chosen = share(list(pending), rows)
        pieces = cut(chosen, self._spark.sparkContext.defaultParallelism)
        work = partial(copy, self._lake.location)
        files: list[LakeFile] = (
            self._spark.sparkContext.parallelize(pieces, len(pieces)).flatMap(work).collect()
        )
        self._account_for(without(chosen, files))
        self._see(files)
        if files:
            self._lake.append(files, rounds)
            self._confirm(stretch.partition for stretch in chosen)
        return files

    def _pending(self, there: Iterable[TopicPartition]) -> list[LakeStretch]:
        ends = self._lake.ends()
        pending = []
        for partition in there:
            end = ends.get(partition.partition_id, 0)
            if end > partition.next:
                raise DataLoss(
                    f"the lake has {partition} up to offset {end - 1}, but in the store it ends before "
                    f"{partition.next}: the store was restored from an older backup, or it is another one"
                )
            if max(end, partition.first) < partition.next:
                pending.append(LakeStretch(partition, max(end, partition.first), partition.next))
        return pending

    def _account_for(self, missing: Sequence[LakeStretch]) -> None:
        """Raise DataLoss for missing entries unless their topic was purged or deleted."""
        if not missing:
            return
        kept = {partition.partition_id: partition.first for partition in look(self._stores, self._options)}
        for stretch in missing:
            first = kept.get(stretch.partition.partition_id)
            if first is not None and first < stretch.end:
                raise DataLoss(
                    f"entries of {stretch.partition} from offset {max(first, stretch.start)} to "
                    f"{stretch.end - 1} could not be read, although they were not removed"
                )

    def _see(self, files: Iterable[LakeFile]) -> None:
        """Check that the driver sees the files: executors on other machines may write to local disks."""
        absent = storage.absent(self._lake.location, {file.path: file.size for file in files})
        if absent:
            raise InvalidOption(
                f"executors have written files to {self._lake.location} that are not there (such as "
                f"{absent[0]}): the lake has to be where all machines of the cluster reach it"
            )

    def _confirm(self, partitions: Iterable[TopicPartition]) -> None:
        ends = self._lake.ends()
        self._subscription.confirm(
            (partition, ends[partition.partition_id])
            for partition in partitions
            if partition.partition_id in ends
        )


def copy(location: str, piece: LakeStretch) -> list[LakeFile]:
    """Write a piece to files, in a task. The driver checks for entries that were not found."""
    partition = piece.partition
    wanted = ReadSlice(partition, (Part(piece.start, piece.end),), fail_on_data_loss=False)
    target = writer.FileTarget(location, partition.topic, partition.partition, partition.partition_id)
    return list(writer.write(target, slices.read(RowShape(_READ, timed=False), wanted)))
