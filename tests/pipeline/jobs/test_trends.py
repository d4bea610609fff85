"""`trends`: windows, terms, ranks, late entries, and publishing them once."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.jobs.job import Context
from nuncius.pipeline.jobs.trends import JOB, trends
from nuncius.pipeline.source.schema import SCHEMA
from pipeline.filling import create, sql, value
from pipeline.written import entries as stored

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
RESULT = "window_start timestamp, window_end timestamp, rank int, term string, count bigint"


def minute(n: float) -> datetime:
    return NOON + timedelta(minutes=n)


def table(spark: SparkSession, said: Sequence[tuple[float, str]]) -> DataFrame:
    """Entries with these texts, at these minutes."""
    rows = [("chat", 1, n, None, text.encode(), None, None, minute(at)) for n, (at, text) in enumerate(said)]
    return spark.createDataFrame(rows, SCHEMA)


def found(result: DataFrame) -> list[tuple[float, int, str, int]]:
    rows = result.orderBy("window_start", "rank").collect()
    return [
        ((row.window_start.replace(tzinfo=UTC) - NOON).total_seconds() / 60, row.rank, row.term, row["count"])
        for row in rows
    ]


def test_schema(spark: SparkSession) -> None:
    """The result has a row a window and rank."""
    result = trends(table(spark, [(0, "hello")]), window="1 minute", slide="1 minute")
    expected = spark.createDataFrame([(minute(0), minute(1), 1, "hello", 1)], RESULT)
    assertDataFrameEqual(result, expected, ignoreNullable=True)


def test_words(spark: SparkSession) -> None:
    """Words are letters with digits behind them, in any script, without regard to case."""
    said = [(0, "Grüße, GRÜSSE; grüße! 42 b2b"), (0.5, "日本 (日本) don't \x00 ")]
    result = found(trends(table(spark, said), window="1 minute", slide="1 minute"))
    expected = {"grüße": 2, "grüsse": 1, "b2b": 1, "日本": 2, "don": 1, "t": 1}
    assert {term: count for _, _, term, count in result} == expected
    # Equally frequent ones are ranked by the alphabet.
    assert [term for _, _, term, _ in result[:2]] == ["grüße", "日本"]
    assert [rank for _, rank, _, _ in result] == [1, 2, 3, 4, 5, 6]


def test_hashtags(spark: SparkSession) -> None:
    """Hashtags keep their sign."""
    said = [(0, "#Rain and #rain, # #snow_2 x#y"), (0, "no tags")]
    result = found(trends(table(spark, said), window="1 minute", slide="1 minute", of="hashtags"))
    assert result == [(0, 1, "#rain", 2), (0, 2, "#snow_2", 1), (0, 3, "#y", 1)]


def test_a_json_field(spark: SparkSession) -> None:
    """A field can be nested, and have one value or several; others say nothing."""
    said = [
        (0, '{"user": {"city": "Bern"}}'),
        (0, '{"user": {"city": ["Bern", "Genf", null]}}'),
        (0, '{"user": {"city": null}}'),
        (0, '{"user": 1}'),
        (0, "no json"),
        (0, '{"user": {"city": 7}}'),
    ]
    result = found(trends(table(spark, said), window="1 minute", slide="1 minute", of="json:user.city"))
    assert result == [(0, 1, "Bern", 2), (0, 2, "7", 1), (0, 3, "Genf", 1)]


def test_sliding_windows(spark: SparkSession) -> None:
    """An entry counts in every window it falls into, up to but not including the window's end."""
    said = [(0, "a"), (2, "a"), (3, "b")]
    result = found(trends(table(spark, said), window="3 minutes", slide="1 minute"))
    assert result == [
        (-2, 1, "a", 1),
        (-1, 1, "a", 1),
        (0, 1, "a", 2),
        (1, 1, "a", 1),
        (1, 2, "b", 1),
        (2, 1, "a", 1),
        (2, 2, "b", 1),
        (3, 1, "b", 1),
    ]


def test_top(spark: SparkSession) -> None:
    """Only the most frequent terms of a window are kept."""
    said = [(0, "c b b a a a"), (1, "d")]
    result = found(trends(table(spark, said), window="1 minute", slide="1 minute", top=2))
    assert result == [(0, 1, "a", 3), (0, 2, "b", 2), (1, 1, "d", 1)]


def test_event_time(spark: SparkSession) -> None:
    """An entry can bring the time at which it counts; one whose time cannot be read does not count."""
    said = [
        (50, '{"t": "2026-03-01T12:00:30Z", "x": "a"}'),
        (51, '{"t": "2026-03-01 13:01:30+01:00", "x": "a"}'),
        (52, '{"t": "soon", "x": "b"}'),
        (53, '{"x": "c"}'),
    ]
    result = found(trends(table(spark, said), window="1 minute", slide="1 minute", of="json:x", at="json:t"))
    assert result == [(0, 1, "a", 1), (1, 1, "a", 1)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"of": "letters"}, "trends are of words, hashtags or json:FIELD, not of 'letters'"),
        ({"of": "json:"}, "not of 'json:'"),
        ({"at": "noon"}, "not at 'noon'"),
        ({"top": "many"}, "top is a number from 1 to 10000, not 'many'"),
    ],
)
def test_wrong_settings(
    spark: SparkSession, dsn: str, tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    """A setting that cannot be meant so is refused before anything runs."""
    create(dsn, "chat")
    context = Context(spark, dsn, {"topic": "chat", **settings}, checkpoint=str(tmp_path))
    with pytest.raises(InvalidOption, match=words):
        JOB.run(context)


# The job


def say(dsn: str, said: Sequence[tuple[float, str]]) -> None:
    """Publishes texts that arrive at these minutes."""
    next_offset: int = value(dsn, "select nuncius.next_offset(min(partition_id)) from nuncius.partitions")
    for n, (at, text) in enumerate(said):
        sql(
            dsn,
            "insert into nuncius.entries (partition_id, entry_offset, time_of_arrival, body)"
            " select min(partition_id), $1, $2, $3 from nuncius.partitions",
            next_offset + n,
            minute(at),
            text.encode(),
        )


def published(dsn: str) -> list[dict[str, Any]]:
    return [json.loads(entry["body"]) for entry in stored(dsn, "chat.trends")]


def settings(**more: str) -> dict[str, str]:
    return {"topic": "chat", "window": "2 minutes", "slide": "2 minutes", "late": "1 minute", **more}


def test_the_job(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """Windows are published when they are over, one run going on where the last ended; what comes too late
    for its window is dropped and counted."""
    create(dsn, "chat")

    def run() -> tuple[int, int, Any]:
        context = Context(spark, dsn, settings(top="2"), checkpoint=str(tmp_path))
        summary = JOB.run(context)
        assert summary.facts["topic"] == "chat.trends"
        return summary.rows_read, summary.rows_written, summary.facts["late"]

    say(dsn, [(0, "a b c a"), (1.5, "b a"), (2.5, "x")])
    assert run() == (3, 0, 0)
    assert stored(dsn, "chat.trends") == []
    # 3.2 is more than a minute after the first window's end, so it is over; 1.9 still comes in time for it.
    say(dsn, [(1.9, "b b"), (3.2, "x")])
    assert run() == (2, 2, 0)
    assert published(dsn) == [
        {
            "window_start": "2026-03-01T12:00:00.000Z",
            "window_end": "2026-03-01T12:02:00.000Z",
            "rank": 1,
            "term": "b",
            "count": 4,
        },
        {
            "window_start": "2026-03-01T12:00:00.000Z",
            "window_end": "2026-03-01T12:02:00.000Z",
            "rank": 2,
            "term": "a",
            "count": 3,
        },
    ]
    assert {entry["key"] for entry in stored(dsn, "chat.trends")} == {"2026-03-01T12:00:00Z"}
    say(dsn, [(1, "late"), (9, "y")])
    assert run() == (2, 1, 1)
    assert [(row["term"], row["count"]) for row in published(dsn)[2:]] == [("x", 2)]


def test_a_replay(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """A run that died before it had noted its last batch publishes nothing twice when it is run again."""
    create(dsn, "chat")
    say(dsn, [(0, "a"), (9, "z")])
    context = Context(spark, dsn, settings(to="chat.trends"), checkpoint=str(tmp_path))
    assert JOB.run(context).rows_written == 1
    (commits,) = tmp_path.glob("*/commits")
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink()
    JOB.run(context)
    assert [row["term"] for row in published(dsn)] == ["a"]


def test_other_settings_are_another_stream(spark: SparkSession, dsn: str, tmp_path: Path) -> None:
    """Trends of another kind start from the beginning of the topic, and leave the first's places alone."""
    create(dsn, "chat")
    say(dsn, [(0, "#a b"), (9, "z")])
    for kind in ("words", "hashtags", "words"):
        JOB.run(Context(spark, dsn, settings(of=kind), checkpoint=str(tmp_path)))
    assert [row["term"] for row in published(dsn)] == ["a", "b", "#a"]
