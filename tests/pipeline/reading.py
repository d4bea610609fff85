"""Reading through Spark and past it, for tests of the source."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from nuncius.pipeline.source.batch import BatchReader
from nuncius.pipeline.source.schema import SCHEMA
from nuncius.pipeline.source.stream import StreamReader


def table(
    spark: SparkSession, dsn: str, schema: str | StructType | None = None, **options: object
) -> DataFrame:
    """Topics as a table; `schema` names fewer columns."""
    reader = spark.read.format("nuncius").options(store=dsn, **texts(options))
    return (reader.schema(schema) if schema is not None else reader).load()


def offsets(df: DataFrame) -> list[tuple[str, int, int]]:
    """Topic, partition and offset of every row, sorted."""
    return sorted(
        (row.topic, row.partition, row.offset) for row in df.select("topic", "partition", "offset").collect()
    )


class Followed:
    """What a stream brought, batch by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}

    def __call__(self, df: DataFrame, number: int) -> None:
        assert df.schema == SCHEMA
        self.batches[number] = df.collect()

    @property
    def sizes(self) -> list[int]:
        """How many rows each batch had, without the empty ones."""
        return [len(rows) for _, rows in sorted(self.batches.items()) if rows]

    @property
    def rows(self) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of every row, in the order of batches, then sorted."""
        return [
            place
            for _, rows in sorted(self.batches.items())
            for place in sorted((row.topic, row.partition, row.offset) for row in rows)
        ]


def follow(
    spark: SparkSession, dsn: str, checkpoint: Path, *, to: Followed | None = None, **options: object
) -> tuple[Followed, StreamingQuery]:
    """Starts a stream that goes on until it is stopped."""
    followed = to or Followed()
    stream = spark.readStream.format("nuncius").options(store=dsn, **texts(options)).load()
    query = stream.writeStream.foreachBatch(followed).option("checkpointLocation", str(checkpoint)).start()
    return followed, query


def catch_up(spark: SparkSession, dsn: str, checkpoint: Path, **options: object) -> Followed:
    """Reads what there is and has not been read with this checkpoint, as Trigger.AvailableNow does."""
    followed = Followed()
    stream = spark.readStream.format("nuncius").options(store=dsn, **texts(options)).load()
    writer = stream.writeStream.foreachBatch(followed).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return followed


def batch_reader(dsn: str, schema: StructType = SCHEMA, /, **options: object) -> BatchReader:
    """The reader that Spark would make, in this process."""
    return BatchReader({"store": dsn, **texts(options)}, schema)


@contextlib.contextmanager
def stream_reader(dsn: str, **options: object) -> Iterator[StreamReader]:
    """The reader that Spark would make, in this process."""
    reader = StreamReader({"store": dsn, **texts(options)}, SCHEMA)
    try:
        yield reader
    finally:
        reader.stop()


def everything(reader: BatchReader) -> pa.Table:
    """All rows of a read, in the order of its tasks."""
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return pa.Table.from_batches(batches)


def texts(options: dict[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
    }
