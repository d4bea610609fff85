"""A stream as a subscriber: seen, with its lag, and holding retention back."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.filling import create, fill, grow, publish, sql, value
from pipeline.reading import Followed, catch_up, stream_reader


def lag(dsn: str, topic: str = "news", subscriber: str = "job") -> int:
    found: int = value(dsn, "select lag from nuncius.list_subscriptions($1, $2)", topic, subscriber)
    return found


def test_a_stream_is_seen_with_its_lag(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """While it runs, what it has not done yet; when a run over what is there has ended, nothing."""
    fill(dsn, "news", 5, partitions=2)
    lags = []

    class Watching(Followed):
        def __call__(self, df: DataFrame, number: int) -> None:
            lags.append(lag(dsn))
            super().__call__(df, number)

    followed = Watching()
    stream = spark.readStream.format("nuncius").options(
        store=dsn, topic="news", maxRowsPerBatch="4", subscription="job"
    )
    writer = stream.load().writeStream.foreachBatch(followed).option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert followed.sizes == [4, 4, 2]
    assert lags == [10, 6, 2]
    assert lag(dsn) == 0
    publish(dsn, "news", ["x", "y", "z"])
    assert lag(dsn) == 3
    assert catch_up(spark, dsn, tmp_path, topic="news", subscription="job").sizes == [3]
    assert lag(dsn) == 0


@pytest.mark.parametrize(
    ("options", "behind"),
    [({}, 5), ({"startingOffsets": "latest"}, 0), ({"startingOffsets": '{"news": {"1": 3}}'}, 2)],
)
def test_a_new_subscription_begins_where_the_stream_does(
    dsn: str, options: dict[str, str], behind: int
) -> None:
    """At the latest once the first batch is planned."""
    fill(dsn, "news", 5)
    with stream_reader(dsn, topic="news", subscription="job", **options) as reader:
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        assert lag(dsn) == behind


def test_what_is_done_is_confirmed_when_spark_says_so(dsn: str) -> None:
    """With the commit of a batch, which comes before the next is planned; once, although Spark repeats it."""
    topic_id = create(dsn, "news")
    publish(dsn, "news", ["a", "b", "c"])
    done = {"news": {"id": topic_id, "1": 2}}
    with stream_reader(dsn, topic="news", subscription="job") as reader:
        reader.initialOffset()
        for _ in range(2):
            reader.commit(done)
            reader.latestOffset(done, ReadAllAvailable())
        assert lag(dsn) == 1
    assert value(dsn, "select count(*) from nuncius.positions") == 1
    with stream_reader(dsn, topic="news") as reader:
        reader.commit(done)


def test_retention_waits_for_a_stream_that_asks_for_it(dsn: str) -> None:
    """What it has not read stays, whatever the topic's retention; what it has confirmed may go."""
    topic_id = create(dsn, "news")
    publish(dsn, "news", ["a", "b", "c", "d"])
    value(dsn, "select nuncius.set_retention('news', 'size', null, 1)")

    def collected() -> int:
        while value(dsn, "select nuncius.collect()"):
            pass
        kept: int = value(dsn, "select first_offset from nuncius.partitions")
        return kept

    with stream_reader(dsn, topic="news", subscription="job", holdRetention=True) as reader:
        reader.initialOffset()
        assert collected() == 0
        reader.commit({"news": {"id": topic_id, "1": 2}})
        assert collected() == 2
    with stream_reader(dsn, topic="news", subscription="job", holdRetention=False) as reader:
        reader.latestOffset({"news": {"id": topic_id, "1": 2}}, ReadAllAvailable())
        assert collected() == 3, "the last entry is more than a byte"


def test_topics_and_partitions_that_appear_are_subscribed_to(dsn: str) -> None:
    """From their beginning, as they are read."""
    a = create(dsn, "news.a")
    with stream_reader(dsn, topicPattern="news.*", subscription="job", startingOffsets="latest") as reader:
        start = reader.initialOffset()
        grow(dsn, "news.a", 2)
        publish(dsn, "news.a", ["x"], partition=2)
        b = create(dsn, "news.b")
        publish(dsn, "news.b", ["x", "y"])
        noted = reader.latestOffset(start, ReadAllAvailable())
        assert (lag(dsn, "news.a"), lag(dsn, "news.b")) == (1, 2)
        end = reader.latestOffset(noted, ReadAllAvailable())
        assert end == {"news.a": {"id": a, "1": 0, "2": 1}, "news.b": {"id": b, "1": 2}}
        reader.commit(end)
        assert (lag(dsn, "news.a"), lag(dsn, "news.b")) == (0, 0)


def test_a_stream_that_begins_anew_behind_its_subscription_is_warned_of(
    dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Positions go forward only, so the lag is right again when it has got there."""
    topic_id = create(dsn, "news")
    publish(dsn, "news", ["a", "b", "c"])
    with stream_reader(dsn, topic="news", subscription="job") as reader:
        start = reader.initialOffset()
        reader.commit({"news": {"id": topic_id, "1": 2}})
    assert caplog.text == ""
    with stream_reader(dsn, topic="news", subscription="job") as reader:
        assert reader.initialOffset() == start
        assert lag(dsn) == 1
    assert (
        "has confirmed partition 1 of topic 'news' up to offset 2, and this stream begins at 0" in caplog.text
    )


def test_a_topic_deleted_meanwhile_is_not_made_again(dsn: str) -> None:
    """To follow a topic that is not there does nothing."""
    topic_id = create(dsn, "news")
    value(dsn, "select nuncius.delete_topic('news')")
    assert sql(dsn, "select * from nuncius.follow($1, 'job', 'earliest', false)", [topic_id]) == []
    assert value(dsn, "select count(*) from nuncius.topics") == 0
