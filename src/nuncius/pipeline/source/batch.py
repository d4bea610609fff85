"""Reading topics as a table: all entries that exist when the read is planned."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from nuncius.pipeline.catalogue import Stores, expect, stores
from nuncius.pipeline.source import options as reading
from nuncius.pipeline.source import schema as columns
from nuncius.pipeline.source import slices
from nuncius.pipeline.source.columns import RowShape
from nuncius.pipeline.source.loss import lost
from nuncius.pipeline.source.slices import ReadSlice
from nuncius.pipeline.source.tiers import ReadableRange, ranges


class BatchReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        columns.check(schema)
        self._options = reading.parse(options, streaming=False)
        self._shape = RowShape(
            schema, timed=self._options.not_before is not None or self._options.before is not None
        )

    def partitions(self) -> list[InputPartition]:
        found: list[InputPartition] = []
        with stores(self._options.dsn) as asked:
            there = ranges(asked, self._options)
            expect(self._options, (r.partition for r in there))
            for readable in there:
                start, end = readable.start(asked, self._options), self._end(asked, readable)
                found.extend(readable.slices(start, end, self._options))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there are no slices, Spark passes a partition of its own.
        if isinstance(partition, ReadSlice):
            yield from slices.read(self._shape, partition)

    def _end(self, asked: Stores, readable: ReadableRange) -> int:
        if self._options.before is not None:
            return readable.end_before(asked, self._options.before)
        end = readable.chosen(self._options.end, readable.end)
        if end > readable.end:
            lost(
                f"{readable.partition} ends before offset {readable.end}, and was to be read up to {end}",
                fail=self._options.fail_on_data_loss,
            )
        return min(end, readable.end)
