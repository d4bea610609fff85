"""Conversion of rows of the store or the lake to Arrow batches in the declared schema.

A batch must match the declared schema exactly. Work per row is avoided: the topic is not a column of the
store's answer, publishers come as numbers and get their names here, and headers are only decoded in batches
that have some.
"""

from collections.abc import Callable
from itertools import accumulate, chain

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from nuncius.pipeline.catalogue import TopicPartition

# The SQL expression of a column. The values of other columns are known without a query.
SQL = {
    "key": "key",
    "value": "body",
    "headers": "headers::text",
    "publisher": "publisher_id",
    "time": "time_of_arrival",
    "publisher_count": "publisher_count",
}
# The nullable columns, and the stored columns that are null for them.
NULLABLE = {
    "key": "key",
    "headers": "headers",
    "publisher": "publisher_id",
    "publisher_count": "publisher_count",
}
OFFSET = "entry_offset"  # always selected: it shows that no entry is missing

_strings = msgspec.json.Decoder(dict[str, str])

Names = Callable[[pa.Array], pa.Array]


class RowShape:
    """The columns that a reader requests, and the conversion of batches to them."""

    def __init__(self, schema: StructType, *, timed: bool) -> None:
        self.schema = to_arrow_schema(schema, timezone="UTC")
        wanted = set(self.schema.names)
        self.names = [name for name in SQL if name in wanted or (timed and name == "time")]

    @property
    def lake(self) -> list[str]:
        """Return the columns to read from the lake."""
        return list(dict.fromkeys([*self.schema.names, "offset", *self.names]))

    def from_store(
        self, batch: pa.RecordBatch, names: list[str], partition: TopicPartition, publishers: Names
    ) -> pa.RecordBatch:
        """Convert a batch of the store's answer (the offset and these columns) to the declared schema."""
        found = dict(zip(["offset", *names], batch.columns, strict=True))
        constants = {
            "topic": partition.topic,
            "partition": partition.partition,
            "partition_id": partition.partition_id,
        }
        columns = []
        for field in self.schema:
            if field.name in constants:
                columns.append(pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows))
            elif field.name not in found:
                columns.append(pa.nulls(batch.num_rows, field.type))
            elif field.name == "publisher":
                columns.append(publishers(found["publisher"]))
            elif field.name == "headers":
                columns.append(headers(found["headers"], field.type))
            else:
                columns.append(found[field.name])
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def from_lake(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch of the lake, which has our columns, to the declared schema."""
        columns = [batch.column(field.name).cast(field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def in_time(batch: pa.RecordBatch, column: int, not_before: int | None, before: int | None) -> pa.RecordBatch:
    """Return the rows whose time, in that column, is in a range."""
    times = batch.column(column)
    if not_before is not None:
        batch = batch.filter(pc.greater_equal(times, pa.scalar(not_before, times.type)))
        times = batch.column(column)
    if before is not None:
        batch = batch.filter(pc.less(times, pa.scalar(before, times.type)))
    return batch


def headers(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Decode headers from their JSON, which is always an object of strings."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), kind)
    maps = [None if text is None else _strings.decode(text) for text in texts.to_pylist()]
    lengths = accumulate((len(found) if found else 0 for found in maps), initial=0)
    # A null offset at the start of a map makes the map null; the last offset is the end of the last map.
    offsets = [
        at if following is not None else None for at, following in zip(lengths, chain(maps, [0]), strict=True)
    ]
    keys = pa.array([name for found in maps if found for name in found], pa.string())
    items = pa.array([text for found in maps if found for text in found.values()], pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=kind)
