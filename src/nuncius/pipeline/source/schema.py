"""The columns in which Spark sees the entries of topics."""

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

# Columns that only a schema of the reader's own brings: the count under which a publisher sent an entry,
# and the number that tells a topic from another of the same name that was deleted.
EXTRA = StructType(
    [StructField("publisher_count", LongType()), StructField("partition_id", IntegerType(), False)]
)

_KNOWN: dict[str, DataType] = {field.name: field.dataType for field in [*SCHEMA, *EXTRA]}


def check(schema: StructType) -> None:
    """Refuses a schema that names what topics do not have. Fewer columns, in any order, are welcome: what
    is not named is not read."""
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
