"""Reading topics as a stream.

A batch ends at committed offsets, which never change, so its rows depend only on its first and last offsets.
When a partition or topic appears during a stream, the next planned batch records its first offset, and the
batch after that reads it: so the checkpoint knows its start, and no entry can be lost unnoticed.

With `startingTimestamp` a stream begins at the first entry that is not before that time.
"""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from nuncius.pipeline.catalogue import Stores, expect
from nuncius.pipeline.source import options as reading
from nuncius.pipeline.source import positions, slices
from nuncius.pipeline.source import schema as columns
from nuncius.pipeline.source.columns import RowShape
from nuncius.pipeline.source.loss import lost
from nuncius.pipeline.source.positions import PartitionKey, Positions
from nuncius.pipeline.source.slices import ReadSlice
from nuncius.pipeline.source.subscription import StreamSubscription
from nuncius.pipeline.source.tiers import ReadableRange, ranges

Offset = dict[str, dict[str, int]]

PAUSES = (0.01, 0.1)  # seconds before an idle stream reports no news: at first, and at most


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        columns.check(schema)
        self._options = reading.parse(options, streaming=True)
        self._shape = RowShape(schema, timed=False)
        self._stores = Stores(self._options.dsn)
        self._target: dict[PartitionKey, int] | None = None
        self._pause = PAUSES[0]
        self._subscription: StreamSubscription | None = None
        if self._options.subscription is not None:
            self._subscription = StreamSubscription(
                self._stores, self._options.subscription, hold_retention=self._options.hold_retention
            )

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names here and below
        there = self._look()
        expect(self._options, (readable.partition for readable in there.values()))
        if self._subscription is not None:
            edge: reading.Edge = "latest" if self._options.start == "latest" else "earliest"
            self._subscription.follow((place.topic_id for place in there), edge)
            there = self._look()  # retention may have dropped entries before it was held
        start = {place: readable.start(self._stores, self._options) for place, readable in there.items()}
        if self._subscription is not None:
            self._subscription.warn_if_ahead(start)
        return positions.encode(start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows = self._options.rows_per_batch
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {place: readable.end for place, readable in self._look().items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        begun = positions.decode(start)
        there = self._look()
        if self._subscription is not None:
            self._subscription.follow((place.topic_id for place in there), "earliest")
        self._confirm(begun, there)
        for place in begun.keys() - there.keys():
            self._report_missing(place, there)
        ends: dict[PartitionKey, int] = {}
        waiting: dict[PartitionKey, int] = {}
        for place, readable in there.items():
            upto = readable.end if self._target is None else self._target.get(place)
            if place not in begun:
                if upto is not None:
                    ends[place] = readable.first
                continue
            ends[place] = self._still_there(place, begun[place], readable)
            if upto is not None:
                # Skip removed entries, which are reported when the batch is planned.
                ends[place] = max(ends[place], min(readable.first, upto))
                waiting[place] = max(0, upto - ends[place])
        if isinstance(limit, ReadMaxRows):
            waiting = positions.share(limit.max_rows, waiting)
        for place, rows in waiting.items():
            ends[place] += rows
        latest = positions.encode(ends)
        self._take_breath(idle=latest == start)
        return latest

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return positions.encode({place: readable.end for place, readable in self._look().items()})

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        begun = positions.decode(start)
        there = self._look()
        # The start time only chose the first offset; all later entries are read, whatever their time.
        options = replace(self._options, not_before=None)
        found: list[InputPartition] = []
        for place, upto in positions.decode(end).items():
            at = begun.get(place, upto)
            if at >= upto:
                continue
            if place in there:
                found.extend(there[place].slices(at, upto, options))
            else:
                self._report_missing(place, there)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadSlice)
        return slices.read(self._shape, partition)

    def commit(self, end: Offset) -> None:
        if self._subscription is not None:
            self._confirm(positions.decode(end), self._look())

    def stop(self) -> None:
        self._stores.close()

    def _look(self) -> dict[PartitionKey, ReadableRange]:
        return {found.partition.place: found for found in ranges(self._stores, self._options)}

    def _confirm(self, done: Positions, there: Mapping[PartitionKey, ReadableRange]) -> None:
        if self._subscription is not None:
            self._subscription.confirm(
                (there[place].partition, position) for place, position in done.items() if place in there
            )

    def _take_breath(self, *, idle: bool) -> None:
        """Slow an idle stream down: Spark polls for new entries a hundred times a second."""
        if idle and self._target is None:
            time.sleep(self._pause)
            self._pause = min(2 * self._pause, PAUSES[-1])
        else:
            self._pause = PAUSES[0]

    def _still_there(self, place: PartitionKey, position: int, readable: ReadableRange) -> int:
        if position > readable.end:
            lost(
                f"the position in {place} is offset {position}, but it ends at {readable.end}: "
                "the store was restored from an older backup, or it is another one",
                fail=self._options.fail_on_data_loss,
            )
        return min(position, readable.end)

    def _report_missing(self, place: PartitionKey, there: Mapping[PartitionKey, ReadableRange]) -> None:
        """Report a partition of the checkpoint that the catalogue lacks, if the options still select it."""
        options = self._options
        if options.topics:
            wanted = place.topic in options.topics
        else:
            wanted = re.fullmatch(options.pattern or "", place.topic) is not None
        if not wanted or (options.partitions is not None and place.partition not in options.partitions):
            return
        again = any(other.topic == place.topic for other in there)
        lost(
            f"topic {place.topic!r}, whose partition {place.partition} was being read, was deleted"
            + (" and made again: the new one is another topic and read from its beginning" if again else ""),
            fail=options.fail_on_data_loss,
        )
