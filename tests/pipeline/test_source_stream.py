"""Topics as streams, through Spark."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from nuncius.pipeline.source.schema import SCHEMA
from nuncius.pipeline.source.slices import ReadSlice
from pipeline.filling import create, fill, grow, publish, sql
from pipeline.reading import Followed, catch_up, follow, stream_reader


def rows(topic: str, partition: int, numbers: range) -> list[tuple[str, int, int]]:
    return [(topic, partition, number) for number in numbers]


def test_a_stream_has_the_schema_of_a_table(spark: SparkSession, dsn: str) -> None:
    """Or the narrower one that it is given."""
    create(dsn, "news")
    stream = spark.readStream.format("nuncius").options(store=dsn, topic="news")
    assert stream.load().schema == SCHEMA
    narrow = stream.schema("value binary, offset bigint").load()
    assert narrow.schema.simpleString() == "struct<value:binary,offset:bigint>"


def test_what_is_there_is_read_once(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """A run reads what there is and ends; the next, from the checkpoint, reads what has come since."""
    fill(dsn, "news", 10, partitions=2)
    assert catch_up(spark, dsn, tmp_path, topic="news").rows == [
        *rows("news", 1, range(10)),
        *rows("news", 2, range(10)),
    ]
    assert catch_up(spark, dsn, tmp_path, topic="news").rows == []
    publish(dsn, "news", ["x", "y"], partition=2)
    assert catch_up(spark, dsn, tmp_path, topic="news").rows == rows("news", 2, range(10, 12))


def test_batches_have_at_most_so_many_rows(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """The partitions share a batch, and what a short one leaves the others get."""
    fill(dsn, "news", 25, partitions=2)
    publish(dsn, "news", [str(n) for n in range(20)])
    followed = catch_up(spark, dsn, tmp_path, topic="news", maxRowsPerBatch=20)
    assert followed.sizes == [20, 20, 20, 10]
    assert sorted(followed.rows) == [*rows("news", 1, range(45)), *rows("news", 2, range(25))]
    assert followed.rows[:20] == [*rows("news", 1, range(10)), *rows("news", 2, range(10))]


def test_a_run_over_what_is_there_ends_although_more_comes(
    spark: SparkSession, dsn: str, tmp_path: Path
) -> None:
    """Its end is fixed when it begins, for topics and partitions that appear meanwhile, too."""
    fill(dsn, "news.a", 6)

    class Publishing(Followed):
        def __call__(self, df: DataFrame, number: int) -> None:
            super().__call__(df, number)
            publish(dsn, "news.a", ["more"])
            grow(dsn, "news.a", 2 + number)
            create(dsn, f"news.{number}")
            publish(dsn, f"news.{number}", ["other"])

    followed = Publishing()
    stream = spark.readStream.format("nuncius").options(store=dsn, topicPattern="news.*", maxRowsPerBatch="2")
    writer = stream.load().writeStream.foreachBatch(followed).option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert followed.rows == rows("news.a", 1, range(6))
    later = catch_up(spark, dsn, tmp_path, topicPattern="news.*").rows
    assert sorted(later) == [
        *rows("news.0", 1, range(1)),
        *rows("news.1", 1, range(1)),
        *rows("news.2", 1, range(1)),
        *rows("news.a", 1, range(6, 9)),
    ]


def test_partitions_and_topics_may_appear_in_the_middle(
    spark: SparkSession, dsn: str, tmp_path: Path
) -> None:
    """They are read from their beginning, by the stream that runs."""
    create(dsn, "news.a")
    create(dsn, "weather")
    publish(dsn, "news.a", ["before"])
    followed, query = follow(spark, dsn, tmp_path, topicPattern="news.*", startingOffsets="latest")
    try:
        query.processAllAvailable()
        assert followed.rows == []
        publish(dsn, "news.a", ["1"])
        query.processAllAvailable()
        grow(dsn, "news.a", 3)
        publish(dsn, "news.a", ["2", "3"], partition=3)
        create(dsn, "news.b", 2)
        publish(dsn, "news.b", ["4"], partition=2)
        publish(dsn, "weather", ["no"])
        query.processAllAvailable()
        publish(dsn, "news.b", ["5"], partition=2)
        query.processAllAvailable()
    finally:
        query.stop()
    assert followed.rows == [
        *rows("news.a", 1, range(1, 2)),
        *rows("news.a", 3, range(2)),
        *rows("news.b", 2, range(1)),
        *rows("news.b", 2, range(1, 2)),
    ]


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({}, 0, 0),
        ({"startingOffsets": "latest"}, 5, 5),
        ({"startingOffsets": '{"news": {"2": 4}}'}, 0, 4),
        ({"startingTimestamp": "2026-01-01T00:00:05"}, 1, 1),
        ({"startingTimestamp": "2027-01-01"}, 5, 5),
    ],
)
def test_a_stream_begins_where_it_is_told(dsn: str, options: dict[str, str], first: int, second: int) -> None:
    """At the earliest, the latest or named offsets, or at the first entry that is not before a time."""
    fill(dsn, "news", 5, partitions=2)
    for offset, second_of_arrival in enumerate([0, 9, 3, 9, 4]):
        sql(
            dsn,
            "update nuncius.entries set time_of_arrival = $2 where entry_offset = $1",
            offset,
            datetime(2026, 1, 1, 0, 0, second_of_arrival, tzinfo=UTC),
        )
    with stream_reader(dsn, topic="news", **options) as reader:
        start = reader.initialOffset()
        assert (start["news"]["1"], start["news"]["2"]) == (first, second)
        tasks = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        seen = [row["offset"] for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    assert seen == [*range(first, 5), *range(second, 5)], "what comes later counts, whatever its time"


def test_a_batch_that_failed_is_read_again_as_it_was(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """The same rows under the same number, though more has come."""
    fill(dsn, "news", 7)

    class Failing(Followed):
        def __call__(self, df: DataFrame, number: int) -> None:
            super().__call__(df, number)
            if number == 1:
                raise RuntimeError("planted")

    failing, query = follow(spark, dsn, tmp_path, to=Failing(), topic="news", maxRowsPerBatch=3)
    with pytest.raises(StreamingQueryException, match="planted"):
        query.awaitTermination()
    publish(dsn, "news", ["more"] * 10)
    again = catch_up(spark, dsn, tmp_path, topic="news", maxRowsPerBatch=100)
    assert again.batches[1] == failing.batches[1]
    assert again.rows == rows("news", 1, range(3, 17))


def test_progress_shows_offsets_and_how_far_there_is_to_go(
    spark: SparkSession, dsn: str, tmp_path: Path
) -> None:
    """The next offset of each partition, with the id of the topic; and the latest there is."""
    topic_id = create(dsn, "news", 2)
    publish(dsn, "news", ["a", "b", "c"])
    stream = spark.readStream.format("nuncius").options(store=dsn, topic="news", maxRowsPerBatch="2").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        first = next(progress for progress in query.recentProgress if progress["numInputRows"])
    finally:
        query.stop()
    (source,) = first["sources"]
    shown = {name: json.loads(source[name]) for name in ("endOffset", "latestOffset")}
    assert shown == {
        "endOffset": {"news": {"id": topic_id, "1": 2, "2": 0}},
        "latestOffset": {"news": {"id": topic_id, "1": 3, "2": 0}},
    }


def test_a_stream_of_a_topic_that_is_not_there_fails(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """A pattern may fit nothing yet, a name may not."""
    with pytest.raises(StreamingQueryException, match="there is no topic 'nowhere'"):
        catch_up(spark, dsn, tmp_path, topic="nowhere")
    with stream_reader(dsn, topicPattern="nowhere") as reader:
        assert reader.initialOffset() == reader.latestOffset({}, ReadAllAvailable()) == {}


def test_a_topic_that_is_no_longer_asked_for_is_left_out(dsn: str) -> None:
    """A checkpoint goes on with other topics: those that are new begin at their beginning."""
    a, b, c = (create(dsn, topic) for topic in ("a", "b", "c"))
    for topic in ("a", "b", "c"):
        publish(dsn, topic, ["1", "2"])
    begun = {"a": {"id": a, "1": 1}, "b": {"id": b, "1": 1}}
    for options in ({"topic": "b,c"}, {"topicPattern": "[bc]"}):
        with stream_reader(dsn, **options) as reader:
            noted = reader.latestOffset(begun, ReadAllAvailable())
            assert noted == {"b": {"id": b, "1": 2}, "c": {"id": c, "1": 0}}
            assert reader.latestOffset(noted, ReadAllAvailable()) == reader.reportLatestOffset()


def test_tasks_depend_on_the_range_alone(dsn: str) -> None:
    """Slices of a batch are the same whatever has come since."""
    fill(dsn, "news", 100, partitions=2)
    with stream_reader(dsn, topic="news", rowsPerSlice=20, maxRowsPerBatch=60) as reader:
        start = reader.initialOffset()
        assert reader.getDefaultReadLimit() == ReadMaxRows(60)
        end = reader.latestOffset(start, ReadMaxRows(60))
        assert end == {"news": {**start["news"], "1": 30, "2": 30}}
        tasks = reader.partitions(start, end)
        publish(dsn, "news", ["more"])
        assert (
            ranges(reader.partitions(start, end))
            == ranges(tasks)
            == [(1, 0, 20), (1, 20, 30), (2, 0, 20), (2, 20, 30)]
        )
        assert reader.latestOffset(end, ReadAllAvailable()) == reader.reportLatestOffset()
        assert reader.partitions(end, end) == []


def ranges(tasks: list[InputPartition]) -> list[tuple[int, int, int]]:
    found = []
    for task in tasks:
        assert isinstance(task, ReadSlice)
        found.append((task.partition.partition, task.parts[0].start, task.parts[-1].end))
    return found
