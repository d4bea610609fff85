"""A few rows from the driver as a DataFrame."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema


def frame(spark: SparkSession, schema: str, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Rows with the columns of a schema (DDL); what a row does not have is null. As Arrow, so that Spark
    knows them when it plans: several times as fast as rows of Python."""
    columns = spark.createDataFrame([], schema).schema
    picked = [{name: row.get(name) for name in columns.names} for row in rows]
    table = pa.Table.from_pylist(picked, to_arrow_schema(columns, timezone="UTC"))
    return spark.createDataFrame(table, columns)
