"""What a stream or a table says when entries are not there any more."""

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from nuncius.pipeline.errors import DataLoss
from nuncius.pipeline.source.stream import Offset, StreamReader
from pipeline.filling import create, drop_before, fill, publish, sql, value
from pipeline.reading import batch_reader, catch_up, everything, stream_reader


def read(reader: StreamReader, start: Offset, end: Offset) -> list[tuple[str, int]]:
    """The rows of a batch: topics and offsets."""
    tasks = reader.partitions(start, end)
    found = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    return [(row["topic"], row["offset"]) for row in found]


def test_a_stream_whose_position_retention_has_passed_fails(
    spark: SparkSession, dsn: str, tmp_path: Path
) -> None:
    """The message says what is gone and what to do; asked to, the stream goes on with what is left."""
    fill(dsn, "news", 10)
    assert catch_up(spark, dsn, tmp_path, topic="news").sizes == [10]
    publish(dsn, "news", [str(n) for n in range(10)])
    drop_before(dsn, "news", 15)
    with pytest.raises(StreamingQueryException) as failure:
        catch_up(spark, dsn, tmp_path, topic="news")
    said = str(failure.value)
    assert "of partition 1 of topic 'news', the entries from offset 10 to 14 are gone" in said
    assert "retention has come to 15" in said
    assert "'failOnDataLoss' to false" in said
    rest = catch_up(spark, dsn, tmp_path, topic="news", failOnDataLoss=False)
    assert rest.rows == [("news", 1, n) for n in range(15, 20)]


def test_a_limited_batch_counts_what_is_left(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """Rows that are gone take nobody's place in a batch, and are warned of once they are passed over."""
    topic_id = create(dsn, "news")
    publish(dsn, "news", [str(n) for n in range(20)])
    drop_before(dsn, "news", 12)
    start = {"news": {"id": topic_id, "1": 3}}
    with stream_reader(dsn, topic="news", failOnDataLoss=False) as reader:
        end = reader.latestOffset(start, ReadMaxRows(5))
        assert end == {"news": {"id": topic_id, "1": 17}}
        assert read(reader, start, end) == [("news", n) for n in range(12, 17)]
    assert "the entries from offset 3 to 11 are gone" in caplog.text


def test_a_purged_topic_is_a_loss(dsn: str) -> None:
    """Everything was dropped, and nothing has come since."""
    topic_id = create(dsn, "news")
    publish(dsn, "news", ["a", "b"])
    value(dsn, "select nuncius.purge_topic('news')")
    start = {"news": {"id": topic_id, "1": 0}}
    with stream_reader(dsn, topic="news") as reader:
        end = reader.latestOffset(start, ReadAllAvailable())
        with pytest.raises(DataLoss, match="offset 0 to 1 are gone"):
            reader.partitions(start, end)
    with stream_reader(dsn, topic="news", failOnDataLoss=False) as reader:
        assert reader.partitions(start, end) == []


@pytest.mark.parametrize("options", [{"topic": "news,other"}, {"topicPattern": ".*"}])
def test_a_topic_that_was_deleted_is_a_loss(
    dsn: str, options: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Before a batch is planned, and before it is read; asked to, the stream goes on without it."""
    news, other = create(dsn, "news"), create(dsn, "other")
    publish(dsn, "news", ["a"])
    publish(dsn, "other", ["a"])
    start = {"news": {"id": news, "1": 0}, "other": {"id": other, "1": 0}}
    end = {"news": {"id": news, "1": 1}, "other": {"id": other, "1": 1}}
    value(dsn, "select nuncius.delete_topic('news')")
    with stream_reader(dsn, **options) as reader:
        with pytest.raises(DataLoss, match="topic 'news', whose partition 1 was being read, was deleted"):
            reader.latestOffset(start, ReadAllAvailable())
        with pytest.raises(DataLoss, match="was deleted"):
            reader.partitions(start, end)
    with stream_reader(dsn, failOnDataLoss=False, **options) as reader:
        assert reader.latestOffset(start, ReadAllAvailable()) == {"other": {"id": other, "1": 1}}
        assert read(reader, start, end) == [("other", 0)]
    assert "was deleted" in caplog.text


def test_a_topic_that_was_made_again_is_another_one(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is not read on from the old one's offsets; asked to, the stream begins at its beginning."""
    old = create(dsn, "news")
    publish(dsn, "news", ["a", "b", "c"])
    start = {"news": {"id": old, "1": 2}}
    value(dsn, "select nuncius.delete_topic('news')")
    new = create(dsn, "news")
    publish(dsn, "news", ["x", "y", "z", "more"])
    with stream_reader(dsn, topic="news") as reader, pytest.raises(DataLoss, match="deleted and made again"):
        reader.latestOffset(start, ReadAllAvailable())
    with stream_reader(dsn, topic="news", failOnDataLoss=False) as reader:
        noted = reader.latestOffset(start, ReadAllAvailable())
        assert noted == {"news": {"id": new, "1": 0}}
        assert read(reader, start, noted) == []
        end = reader.latestOffset(noted, ReadAllAvailable())
        assert read(reader, noted, end) == [("news", n) for n in range(4)]
    assert "deleted and made again" in caplog.text


def test_a_position_beyond_the_end_is_a_loss(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """A store that was restored from an older backup has forgotten what was read."""
    topic_id = create(dsn, "news")
    publish(dsn, "news", ["a"])
    start = {"news": {"id": topic_id, "1": 5}}
    with stream_reader(dsn, topic="news") as reader, pytest.raises(DataLoss, match="but it ends at 1"):
        reader.latestOffset(start, ReadAllAvailable())
    with stream_reader(dsn, topic="news", failOnDataLoss=False) as reader:
        end = reader.latestOffset(start, ReadAllAvailable())
        assert end == {"news": {"id": topic_id, "1": 1}}
        assert read(reader, start, end) == []
    assert "restored from an older backup" in caplog.text


def test_entries_that_go_after_a_batch_was_planned_are_noticed(dsn: str) -> None:
    """The task that was to read them fails."""
    fill(dsn, "news", 10)
    with stream_reader(dsn, topic="news") as reader:
        start = reader.initialOffset()
        (task,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        drop_before(dsn, "news", 4)
        with pytest.raises(DataLoss, match="4 of the entries from offset 0 to 9 are gone"):
            list(reader.read(task))


def test_a_range_that_is_not_all_there_is_a_loss(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    """A table is complete, too: offsets that are named must be there."""
    fill(dsn, "news", 10)
    drop_before(dsn, "news", 4)
    begin, end = '{"news": {"1": 2}}', '{"news": {"1": 12}}'
    with pytest.raises(DataLoss, match="offset 2 to 3 are gone"):
        batch_reader(dsn, topic="news", startingOffsets=begin).partitions()
    with pytest.raises(DataLoss, match="ends before offset 10, and was to be read up to 12"):
        batch_reader(dsn, topic="news", endingOffsets=end).partitions()
    left = batch_reader(dsn, topic="news", startingOffsets=begin, endingOffsets=end, failOnDataLoss=False)
    assert everything(left).column("offset").to_pylist() == list(range(4, 10))
    assert "offset 2 to 3 are gone" in caplog.text
    assert "up to 12" in caplog.text


def test_rows_that_retention_left_for_the_collector_are_gone(dsn: str) -> None:
    """What may not be read is not, whether or not its rows are removed."""
    fill(dsn, "news", 10)
    sql(dsn, "update nuncius.partitions set first_offset = 6")
    assert everything(batch_reader(dsn, topic="news")).column("offset").to_pylist() == [6, 7, 8, 9]
    with pytest.raises(DataLoss, match="offset 5 to 5 are gone"):
        batch_reader(dsn, topic="news", startingOffsets='{"news": {"1": 5}}').partitions()
