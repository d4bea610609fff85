"""DataFrames from a few rows of the driver, and DataFrames that are read several times."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.storagelevel import StorageLevel


def frame(spark: SparkSession, schema: str, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Return rows with the columns of a schema (DDL); missing values are null. Rows are passed as Arrow, so
    that Spark knows them when it plans: several times as fast as Python rows."""
    columns = spark.createDataFrame([], schema).schema
    picked = [{name: row.get(name) for name in columns.names} for row in rows]
    table = pa.Table.from_pylist(picked, to_arrow_schema(columns, timezone="UTC"))
    return spark.createDataFrame(table, columns)


@contextmanager
def kept(table: DataFrame) -> Iterator[DataFrame]:
    """Persist a table as long as the context lasts, because it is read several times."""
    table.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield table
    finally:
        table.unpersist()
