"""Format "nuncius" for Spark: topics to read, topics and queues to write."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from nuncius.pipeline.source import schema as columns


class NunciusSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "nuncius"

    def schema(self) -> StructType:
        return columns.SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from nuncius.pipeline.source.batch import BatchReader

        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from nuncius.pipeline.source.stream import StreamReader

        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from nuncius.pipeline.sink.sink import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from nuncius.pipeline.sink.sink import StreamWriter

        return StreamWriter(self.options, schema, overwrite)
