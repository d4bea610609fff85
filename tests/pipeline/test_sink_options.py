"""Options, columns and rows that the sink takes, and those it refuses."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from nuncius.pipeline.errors import InvalidOption, InvalidSchema, PipelineError
from nuncius.pipeline.sink.options import WriteTarget, target
from nuncius.pipeline.sink.sink import BatchWriter, StreamWriter
from pipeline.filling import value
from pipeline.tasks import table, task
from pipeline.written import bodies, entries

VALUE = StructType().add("value", BinaryType())
STORE = "postgresql://somewhere/else"
TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "map": MapType(StringType(), StringType()),
    "odd_map": MapType(IntegerType(), StringType()),
}


def schema(columns: str) -> StructType:
    """Columns as in "value binary, headers map"."""
    made = StructType()
    for column in columns.split(", "):
        name, kind = column.split(" ")
        made = made.add(name, TYPES[kind])
    return made


def test_defaults() -> None:
    """Options have names in any case, and sensible defaults."""
    assert target({"STORE": STORE, "Topic": "t"}, VALUE, False) == WriteTarget(
        STORE, "topic", "t", partitions=1, priority=5, receiver=None, rows=100_000
    )
    given = {"store": STORE, "queue": "q", "priority": "9", "receiver": "r", "rowsPerTransaction": "10"}
    assert target(given, VALUE, False) == WriteTarget(STORE, "queue", "q", 1, 9, "r", 10)


def test_what_spark_adds() -> None:
    """Options that Spark itself hands on are no mistake of the user's."""
    options = {"store": STORE, "topic": "t", "checkpointLocation": "/c", "queryName": "q", "path": ""}
    assert target(options, VALUE, False).name == "t"


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (
            "value int",
            {"topic": "t"},
            "column 'value' cannot be int: a topic takes topic (string), value (bin",
        ),
        (
            "value string, offset bigint",
            {"topic": "t"},
            "a topic has no column 'offset': select some of topic",
        ),
        ("value string, key int", {"topic": "t"}, "column 'key' cannot be int"),
        ("value string, priority int", {"topic": "t"}, "a topic has no column 'priority'"),
        ("value string, partition string", {"topic": "t"}, "column 'partition' cannot be string"),
        ("value string, key string", {"queue": "q"}, "a queue has no column 'key': select some of queue"),
        ("body string", {"topic": "t"}, "a topic has no column 'body'"),
        ("key string", {"topic": "t"}, "there is no column 'value'"),
        ("value string, value binary", {"topic": "t"}, "each column can be there once"),
    ],
)
def test_columns(columns: str, options: dict[str, str], words: str) -> None:
    """A column that a topic or a queue has not, or has otherwise, is refused with those there are."""
    with pytest.raises(InvalidSchema) as refused:
        target({"store": STORE, **options}, schema(columns), False)
    assert words in str(refused.value)


def test_headers_are_text() -> None:
    """Headers are a map from text to text."""
    with pytest.raises(InvalidSchema, match="'headers' cannot be map<int,string>"):
        target({"store": STORE, "topic": "t"}, schema("value string, headers odd_map"), False)
    right = schema("value string, headers map, partition bigint")
    assert target({"store": STORE, "topic": "t"}, right, False).kind == "topic"


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("value string", {}, "where to? Give option 'topic' or 'queue', or a column of that name"),
        ("value string, topic string", {"topic": "t"}, "Leave option 'topic' or column 'topic' out"),
        ("value string, queue string", {"topic": "t"}, "Leave option 'topic' or column 'queue' out"),
        ("value string", {"topic": "t", "queue": "q"}, "Leave option 'topic' or option 'queue' out"),
        ("value string", {"topic": "t", "partitions": "many"}, "'partitions' is a number from 1 to 1000"),
        (
            "value string",
            {"topic": "t", "partitions": "0"},
            "'partitions' is a number from 1 to 1000, not '0'",
        ),
        ("value string", {"queue": "q", "priority": "11"}, "'priority' is a number from 1 to 10, not '11'"),
        (
            "value string",
            {"topic": "t", "rowPerTransaction": "9"},
            "a write has no option 'rowPerTransaction'",
        ),
        ("value string", {"topic": "t", "batch": "3"}, "give it a name with option 'name'"),
        (
            "value string",
            {"topic": "t", "name": "a", "batch": "x"},
            "'batch' is a number from 0 to 2147483647",
        ),
        ("value string", {"topic": "t", "name": "a/b", "batch": "3"}, "no slash among them"),
        ("value string", {"topic": "t", "name": "n" * 121, "batch": "3"}, "has 1 to 120 characters"),
    ],
)
def test_wrong_options(columns: str, options: dict[str, str], words: str) -> None:
    """An option that cannot be meant so is refused."""
    with pytest.raises(InvalidOption) as refused:
        BatchWriter({"store": STORE, **options}, schema(columns), False)
    assert words in str(refused.value)


def test_streams() -> None:
    """A stream numbers its own batches, and cannot replace what a topic has."""
    options = {"store": STORE, "topic": "t", "name": "n"}
    with pytest.raises(InvalidOption, match="leave option 'batch' out"):
        StreamWriter({**options, "batch": "1"}, VALUE, False)
    with pytest.raises(InvalidOption, match="topics and queues only grow"):
        StreamWriter(options, VALUE, True)


# Rows


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"value": [b"a", None]}, "column 'value' must not be null"),
        ({"value": [b"a", b"b"], "topic": ["t", None]}, "column 'topic' must not be null"),
        ({"value": [b"a"], "topic": [" t"]}, "is no name for a topic"),
        ({"value": [b"a"], "topic": [""]}, "is no name for a topic"),
        ({"value": [b"a"], "topic": ["t" * 256]}, "is no name for a topic"),
        ({"value": [b"a"], "partition": [0]}, "topic 't' has 1 partitions, and none is 0"),
        ({"value": [b"a"], "partition": [2]}, "topic 't' has 1 partitions, and none is 2"),
        ({"value": [b"a"], "key": ["k" * 1025]}, "a key has at most 1024 characters"),
        ({"value": [b"a"], "key": ["a\0"]}, "a key has no NUL character"),
        ({"value": [b"a" * ((8 << 20) + 1)]}, "a message has at most 8388608 bytes, not 8388609"),
    ],
)
def test_rows(dsn: str, columns: dict[str, Sequence[Any]], words: str) -> None:
    """A row that nobody could read, or that has no place, is refused, and its neighbours with it."""
    options = {"store": dsn} | ({} if "topic" in columns else {"topic": "t"})
    writer = BatchWriter(options, schema(", ".join(f"{name} {_KIND[name]}" for name in columns)), False)
    with task(), pytest.raises(PipelineError) as refused:
        writer.write(iter([table(**columns)]))
    assert words in str(refused.value)
    assert value(dsn, "select count(*) from nuncius.entries") == 0


_KIND = {"value": "binary", "topic": "string", "partition": "bigint", "key": "string"}


def test_headers_that_are_too_much(dsn: str) -> None:
    """Headers have values, and are not without end."""
    kind = pa.map_(pa.string(), pa.string())
    writer = BatchWriter({"store": dsn, "topic": "t"}, schema("value binary, headers map"), False)
    for headers, words in (([("a", None)], "headers are strings"), ([("a", "x" * 70_000)], "have at most")):
        rows = pa.RecordBatch.from_arrays([pa.array([b"a"]), pa.array([headers], kind)], ["value", "headers"])
        with task(), pytest.raises(PipelineError, match=words):
            writer.write(iter([rows]))


# Names


def test_the_names_of_writes(dsn: str) -> None:
    """A named write counts under its name; inside a query, under the query's id and the batch's number, so
    that another checkpoint is another sink."""
    options = {"store": dsn, "topic": "t", "name": "n"}
    with task(3):
        writer = BatchWriter({**options, "batch": "7"}, VALUE, False)
        writer.commit([writer.write(iter([table(value=[b"a"])])), None])
    with task(0, query="q", batch="2"):
        BatchWriter(options, VALUE, False).write(iter([table(value=[b"b"])]))
    with task(1, query="q", batch="4"):
        stream = StreamWriter(options, VALUE, False)
        stream.commit([stream.write(iter([table(value=[b"c"])]))], 4)
    with task(1, query="q", batch="4"):
        StreamWriter({"store": dsn, "topic": "t"}, VALUE, False).write(iter([table(value=[b"d"])]))
    found = {entry["body"]: (entry["publisher"], entry["count"]) for entry in entries(dsn, "t")}
    assert found == {
        b"a": ("spark/n/3", (7 << 32) + 1),
        b"b": ("spark/n/q/0", (2 << 32) + 1),
        b"c": ("spark/n/q/1", (4 << 32) + 1),
        b"d": ("spark/stream/q/1", (4 << 32) + 1),
    }
    with task(9):
        again = BatchWriter({**options, "batch": "7"}, VALUE, False).write(iter([table(value=[b"a"])]))
    assert (again.rows, again.known) == (0, 1)


def test_a_write_without_a_name(dsn: str) -> None:
    """A write without a name has one of its own, which its repeated tasks share."""
    writer = BatchWriter({"store": dsn, "topic": "t"}, VALUE, False)
    for _ in range(2):
        with task(0, query="q", batch="2"):
            writer.commit([writer.write(iter([table(value=[b"a"])]))])
    assert bodies(dsn, "t") == [b"a"]


def test_no_way_to_tell(dsn: str) -> None:
    """Where nothing tells which batch it is, nothing is written."""
    with task():
        with pytest.raises(InvalidOption, match="Give option 'batch', a number that goes up, besides 'name'"):
            BatchWriter({"store": dsn, "topic": "t", "name": "n"}, VALUE, False).write(iter([]))
        with pytest.raises(InvalidOption, match="Spark does not say which query and batch this is"):
            StreamWriter({"store": dsn, "topic": "t"}, VALUE, False).write(iter([]))
