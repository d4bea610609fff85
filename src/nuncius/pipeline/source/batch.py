"""Reading topics as a table: all entries that exist when the read is planned."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from nuncius.pipeline.catalogue import Stores, expect, stores
from nuncius.pipeline.source import options as reading
from nuncius.pipeline.source import schema as columns
from nuncius.pipeline.source import slices
from nuncius.pipeline.source.columns import Shape
from nuncius.pipeline.source.loss import lost
from nuncius.pipeline.source.slices import Slice
from nuncius.pipeline.source.tiers import Range, ranges


class BatchReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        columns.check(schema)
        self._options = reading.parse(options, streaming=False)
        self._shape = Shape(
            schema, timed=self._options.not_before is not None or self._options.before is not None
        )

    def partitions(self) -> list[InputPartition]:
        found: list[InputPartition] = []
        with stores(self._options.dsn) as asked:
            there = ranges(asked, self._options)
            expect(self._options, (r.partition for r in there))
            for readable in there:
                start, end = self._start(asked, readable), self._end(asked, readable)
                found.extend(readable.slices(start, end, self._options))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there are no slices, Spark passes a partition of its own.
        if isinstance(partition, Slice):
            yield from slices.read(self._shape, partition)

    def _start(self, asked: Stores, readable: Range) -> int:
        if self._options.not_before is not None:
            return readable.first_not_before(asked, self._options.not_before)
        return _named(self._options.start, readable, readable.first)

    def _end(self, asked: Stores, readable: Range) -> int:
        if self._options.before is not None:
            return readable.end_before(asked, self._options.before)
        end = _named(self._options.end, readable, readable.end)
        if end > readable.end:
            lost(
                f"{readable.partition} ends before offset {readable.end}, and was to be read up to {end}",
                fail=self._options.fail_on_data_loss,
            )
        return min(end, readable.end)


def _named(offsets: reading.Edge | reading.Offsets, readable: Range, otherwise: int) -> int:
    if isinstance(offsets, str):
        return otherwise
    return offsets.get(readable.partition.topic, {}).get(readable.partition.partition, otherwise)
