"""The columns of entries in Spark."""

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from nuncius.pipeline.errors import InvalidSchema

HEADERS = MapType(StringType(), StringType())

SCHEMA = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("partition", IntegerType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("key", StringType()),
        StructField("value", BinaryType(), nullable=False),
        StructField("headers", HEADERS),
        StructField("publisher", StringType()),
        StructField("time", TimestampType(), nullable=False),
    ]
)

# Columns that are only read with an explicit schema: a publisher's count of the entry, and the id that
# distinguishes a topic from a deleted one of the same name.
EXTRA = StructType(
    [StructField("publisher_count", LongType()), StructField("partition_id", IntegerType(), False)]
)

_KNOWN: dict[str, DataType] = {field.name: field.dataType for field in [*SCHEMA, *EXTRA]}


def check(schema: StructType) -> None:
    """Refuse a schema with unknown columns. It may have fewer columns, in any order: only named columns are
    read."""
    for field in schema:
        known = _KNOWN.get(field.name)
        if known is None:
            raise InvalidSchema(
                f"a topic has no column {field.name!r}: name some of {', '.join(_KNOWN)} in your schema"
            )
        if field.dataType != known:
            raise InvalidSchema(
                f"column {field.name!r} is {known.simpleString()}, not {field.dataType.simpleString()}: "
                "read it as that and cast it"
            )
    names = schema.fieldNames()
    if not names or len(set(names)) < len(names):
        raise InvalidSchema(f"a schema names at least one column, and each once, not {names}")
