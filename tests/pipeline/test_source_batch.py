"""Topics as tables, through Spark."""

import sys
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from nuncius.pipeline.source.schema import EXTRA, SCHEMA
from pipeline.filling import create, drop_before, fill, partition_ids, publish, sql, value
from pipeline.reading import batch_reader, everything, offsets, table


def test_the_schema_is_what_is_promised(spark: SparkSession, dsn: str) -> None:
    """Names, types and what may be null."""
    create(dsn, "news")
    assert table(spark, dsn, topic="news").schema == StructType(
        [
            StructField("topic", StringType(), nullable=False),
            StructField("partition", IntegerType(), nullable=False),
            StructField("offset", LongType(), nullable=False),
            StructField("key", StringType(), nullable=True),
            StructField("value", BinaryType(), nullable=False),
            StructField("headers", MapType(StringType(), StringType()), nullable=True),
            StructField("publisher", StringType(), nullable=True),
            StructField("time", TimestampType(), nullable=False),
        ]
    )


def test_an_entry_comes_with_everything_it_has(spark: SparkSession, dsn: str) -> None:
    """Key, value, headers, publisher and time are those under which it was published."""
    create(dsn, "news", 2)
    publish(
        dsn,
        "news",
        [b"\x00\xff", "two"],
        keys=["k", None],
        headers=[{"a": "1", "b": ""}, None],
        publisher="alice",
    )
    publish(dsn, "news", ["three"], partition=2, keys=["ключ"])
    found = table(spark, dsn, topic="news")
    assert found.schema == SCHEMA
    rows = [row.asDict(recursive=True) for row in found.orderBy("partition", "offset").collect()]
    times = [row.pop("time").replace(tzinfo=UTC) for row in rows]
    assert rows == [
        {
            "topic": "news",
            "partition": 1,
            "offset": 0,
            "key": "k",
            "value": b"\x00\xff",
            "headers": {"a": "1", "b": ""},
            "publisher": "alice",
        },
        {
            "topic": "news",
            "partition": 1,
            "offset": 1,
            "key": None,
            "value": b"two",
            "headers": None,
            "publisher": "alice",
        },
        {
            "topic": "news",
            "partition": 2,
            "offset": 0,
            "key": "ключ",
            "value": b"three",
            "headers": None,
            "publisher": None,
        },
    ]
    stored = sql(dsn, "select time_of_arrival as at from nuncius.entries order by partition_id, entry_offset")
    assert times == [row["at"] for row in stored]


def test_a_narrow_schema_brings_only_what_it_names(spark: SparkSession, dsn: str) -> None:
    """Fewer columns, in any order, and the two that are not there by default."""
    create(dsn, "news", 2)
    publish(dsn, "news", ["a", "b"], publisher="alice", count=7)
    publish(dsn, "news", ["c"], partition=2)
    named = "publisher_count bigint, partition_id int, value binary, topic string"
    found = table(spark, dsn, named, topic="news")
    assert found.schema.simpleString() == (
        "struct<publisher_count:bigint,partition_id:int,value:binary,topic:string>"
    )
    ids = partition_ids(dsn, "news")
    assert sorted(map(tuple, found.collect()), key=lambda row: bytes(row[2])) == [
        (7, ids[1], b"a", "news"),
        (8, ids[1], b"b", "news"),
        (None, ids[2], b"c", "news"),
    ]
    assert [row.partition for row in table(spark, dsn, "partition int", topic="news").collect()] == [1, 1, 2]


def test_every_column_alone_is_what_it_is_among_others(dsn: str) -> None:
    """What is selected depends on the schema, what comes out of a column does not."""
    create(dsn, "news")
    publish(dsn, "news", ["a", "b"], keys=["k", None], headers=[None, {"h": "1"}], publisher="alice", count=3)
    whole = StructType([*SCHEMA, *EXTRA])
    full = everything(batch_reader(dsn, whole, topic="news"))
    for field in whole:
        alone = everything(batch_reader(dsn, StructType([field]), topic="news"))
        assert alone.column_names == [field.name]
        assert alone.column(0) == full.column(field.name)


def test_topics_are_chosen_by_name_by_list_or_by_pattern(spark: SparkSession, dsn: str) -> None:
    """A pattern fits the whole name, and a topic that nothing is said about is not read."""
    for topic in ("news", "news.sport", "weather"):
        create(dsn, topic)
        publish(dsn, topic, ["x"])
    assert offsets(table(spark, dsn, topic="weather, news")) == [("news", 1, 0), ("weather", 1, 0)]
    assert offsets(table(spark, dsn, topicPattern="news.*")) == [("news", 1, 0), ("news.sport", 1, 0)]
    assert offsets(table(spark, dsn, topicPattern="new")) == []


def test_an_empty_topic_is_an_empty_table(spark: SparkSession, dsn: str) -> None:
    """Also when everything was purged."""
    create(dsn, "news", 2)
    empty = table(spark, dsn, topic="news")
    assert empty.schema == SCHEMA
    assert empty.collect() == []
    publish(dsn, "news", ["x"])
    value(dsn, "select nuncius.purge_topic('news')")
    assert empty.collect() == []


def test_a_range_of_offsets(spark: SparkSession, dsn: str) -> None:
    """From the first offset up to but not including the last; partitions that are not named are whole."""
    fill(dsn, "news", 10, partitions=3)
    found = table(
        spark,
        dsn,
        topic="news",
        startingOffsets='{"news": {"1": 4, "2": 10}}',
        endingOffsets='{"news": {"1": 6}}',
    )
    assert offsets(found) == [("news", 1, 4), ("news", 1, 5)] + [("news", 3, n) for n in range(10)]
    found = table(spark, dsn, topic="news", partitions="2,3", endingOffsets='{"news": {"2": 1, "3": 2}}')
    assert offsets(found) == [("news", 2, 0), ("news", 3, 0), ("news", 3, 1)]


def test_a_large_partition_is_read_by_several_tasks(spark: SparkSession, dsn: str) -> None:
    """The slices depend on the range alone, and have every row once."""
    fill(dsn, "news", 100, partitions=2)
    found = table(spark, dsn, topic="news", rowsPerSlice=30)
    assert found.rdd.getNumPartitions() == 8
    assert offsets(found) == [("news", p, n) for p in (1, 2) for n in range(100)]
    reader = batch_reader(
        dsn, topic="news", partitions="1", startingOffsets='{"news": {"1": 5}}', rowsPerSlice=30
    )
    tasks = reader.partitions()
    assert [
        [row["offset"] for batch in reader.read(task) for row in batch.to_pylist()] for task in tasks
    ] == [
        list(range(5, 35)),
        list(range(35, 65)),
        list(range(65, 95)),
        list(range(95, 100)),
    ]


def test_a_range_begins_where_retention_has_come_to(spark: SparkSession, dsn: str) -> None:
    """The earliest entry is the earliest that is still there."""
    fill(dsn, "news", 10)
    drop_before(dsn, "news", 7)
    assert offsets(table(spark, dsn, topic="news")) == [("news", 1, n) for n in (7, 8, 9)]


def test_headers_are_maps(dsn: str) -> None:
    """Headers, none of them, and no headers at all are different things."""
    for headers in ('{"n": "1", "none": ""}', "{}", None):
        value(dsn, "select nuncius.publish('news', 'x', headers => $1)", headers)
    found = everything(batch_reader(dsn, topic="news")).column("headers").to_pylist()
    assert found == [[("n", "1"), ("none", "")], [], None]


def test_publishers_that_are_forgotten_have_no_name(dsn: str) -> None:
    """Names that clients make up for a connection are dropped after a while; their entries stay."""
    create(dsn, "news")
    for number, name in enumerate(["alice", "bob", "carol"]):
        publish(dsn, "news", [str(number)], publisher=name)
    publish(dsn, "news", ["3"])
    publish(dsn, "news", ["4"], publisher="alice", count=2)
    sql(dsn, "delete from nuncius.publishers where publisher_name = 'bob'")
    found = everything(batch_reader(dsn, topic="news")).column("publisher").to_pylist()
    assert found == ["alice", None, "carol", None, "alice"]


def test_times_are_exact(spark: SparkSession, dsn: str) -> None:
    """Entries from the first time up to but not including the second, even where the clock was set back."""
    fill(dsn, "news", 20)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    seconds = [0, 1, 2, 3, 9, 10, 4, 5, 6, 7, 8, 9, 10, 11, 5, 6, 12, 13, 14, 15]
    for offset, second in enumerate(seconds):
        sql(
            dsn,
            "update nuncius.entries set time_of_arrival = $2 where entry_offset = $1",
            offset,
            begin + timedelta(seconds=second),
        )
    first, last = begin + timedelta(seconds=5), begin + timedelta(seconds=10)
    expected = [("news", 1, n) for n, second in enumerate(seconds) if 5 <= second < 10]
    both = table(
        spark,
        dsn,
        topic="news",
        startingTimestamp=first.isoformat(),
        endingTimestamp=int(last.timestamp() * 1000),
    )
    assert offsets(both) == expected
    assert offsets(both.select("topic", "partition", "offset")) == expected
    narrow = table(spark, dsn, "offset bigint", topic="news", startingTimestamp=first.isoformat())
    assert [row.offset for row in narrow.collect()] == [n for n, second in enumerate(seconds) if second >= 5]
    until = table(spark, dsn, topic="news", endingTimestamp=first.isoformat())
    assert offsets(until) == [("news", 1, n) for n, second in enumerate(seconds) if second < 5]
    assert offsets(table(spark, dsn, topic="news", startingTimestamp="2027-01-01")) == []
    assert offsets(table(spark, dsn, topic="news", endingTimestamp="2025-01-01")) == []


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"topic": "nowhere"}, "there is no topic 'nowhere'"),
        ({"topic": "news", "partitions": "1,7"}, "there is no partition 7 of news"),
        ({"topic": "news", "startingOffsets": '{"news": {"7": 1}}'}, "partition 7 of topic 'news'"),
        ({"topic": "news", "endingOffsets": '{"other": {"1": 1}}'}, "partition 1 of topic 'other'"),
        ({"topic": "news", "startingOffset": "latest"}, "did you mean 'startingOffsets'"),
        ({"topic": "news", "tier": "lake"}, "no lake yet"),
    ],
)
def test_what_cannot_be_read_is_said(
    spark: SparkSession, dsn: str, options: dict[str, str], complaint: str
) -> None:
    """Spark passes on what is wrong, in our words."""
    create(dsn, "news")
    create(dsn, "other")
    with pytest.raises(PySparkException, match=complaint):
        table(spark, dsn, **options).collect()


def test_a_schema_that_is_not_ours_is_refused(spark: SparkSession, dsn: str) -> None:
    """Before anything is read."""
    create(dsn, "news")
    with pytest.raises(PySparkException, match="'offset' is bigint, not string"):
        table(spark, dsn, "offset string", topic="news").collect()


def test_a_database_without_our_schema_is_refused(spark: SparkSession, empty_dsn: str) -> None:
    """With the command that brings it up to date."""
    with pytest.raises(AnalysisException, match="nuncius migrate"):
        table(spark, empty_dsn, topic="news").collect()


def test_a_store_that_is_not_there_is_named(spark: SparkSession) -> None:
    """At once, and with its address."""
    with pytest.raises(AnalysisException, match="cannot connect to the store at postgresql://nobody@127"):
        table(spark, "postgresql://nobody@127.0.0.1:1/none", topic="news").collect()


@pytest.mark.skipif(
    any(map(str.isspace, sys.executable)),
    reason="Spark asks the shell for its Python without quoting, and a path with a blank is not found",
)
def test_spark_finds_the_format_by_itself(spark: SparkSession, dsn: str) -> None:
    """A session in which nobody registered anything knows it by the name of our package."""
    create(dsn, "news")
    publish(dsn, "news", ["x"])
    assert offsets(table(spark.newSession(), dsn, topic="news")) == [("news", 1, 0)]
