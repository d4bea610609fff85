"""From rows of the store, or of the lake, to the Arrow batches that Spark was promised.

A batch must have the declared schema to the letter. What costs time per row is avoided: the topic is not
a column of the store's answer, publishers come as numbers and get their names here, and headers cost
something only in batches that have some.
"""

from collections.abc import Callable
from itertools import accumulate, chain

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from nuncius.pipeline.catalogue import Partition

# What has to be selected for a column; those that are missing here are known without asking.
SQL = {
    "key": "key",
    "value": "body",
    "headers": "headers::text",
    "publisher": "publisher_id",
    "time": "time_of_arrival",
    "publisher_count": "publisher_count",
}
# Those that entries need not have, and how the store tells that they have not.
NULLABLE = {
    "key": "key",
    "headers": "headers",
    "publisher": "publisher_id",
    "publisher_count": "publisher_count",
}
OFFSET = "entry_offset"  # always selected: it shows that no entry is missing

_strings = msgspec.json.Decoder(dict[str, str])

Names = Callable[[pa.Array], pa.Array]


class Shape:
    """The columns that a reader wants, and how batches get them."""

    def __init__(self, schema: StructType, *, timed: bool) -> None:
        self.schema = to_arrow_schema(schema, timezone="UTC")
        wanted = set(self.schema.names)
        self.names = [name for name in SQL if name in wanted or (timed and name == "time")]

    @property
    def lake(self) -> list[str]:
        """The columns to read from the lake."""
        return list(dict.fromkeys([*self.schema.names, "offset", *self.names]))

    def from_store(
        self, batch: pa.RecordBatch, names: list[str], partition: Partition, publishers: Names
    ) -> pa.RecordBatch:
        """A batch of the store's answer (the offset and these columns) in the declared schema."""
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
        """A batch of the lake, which has our columns, in the declared schema."""
        columns = [batch.column(field.name).cast(field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def in_time(batch: pa.RecordBatch, column: int, not_before: int | None, before: int | None) -> pa.RecordBatch:
    """The rows whose time, in that column, is in a range."""
    times = batch.column(column)
    if not_before is not None:
        batch = batch.filter(pc.greater_equal(times, pa.scalar(not_before, times.type)))
        times = batch.column(column)
    if before is not None:
        batch = batch.filter(pc.less(times, pa.scalar(before, times.type)))
    return batch


def headers(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Headers from their JSON, which is always an object of strings."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), kind)
    maps = [None if text is None else _strings.decode(text) for text in texts.to_pylist()]
    lengths = accumulate((len(found) if found else 0 for found in maps), initial=0)
    # A null where a map begins makes the map null; the last is where the last one ends.
    offsets = [
        at if following is not None else None for at, following in zip(lengths, chain(maps, [0]), strict=True)
    ]
    keys = pa.array([name for found in maps if found for name in found], pa.string())
    items = pa.array([text for found in maps if found for text in found.values()], pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, type=kind)
