"""Histories of load programs and fault tests."""

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.testing import assertSchemaEqual

from nuncius.pipeline import history
from nuncius.pipeline.history import HistoryFile, NotAHistory


def written(directory: Path, session: str, events: int) -> Path:
    with HistoryFile(directory, session) as file:
        for n in range(events):
            file.add("delivered", "news", partition=1, offset=n, message=f"m{n}", subscriber="s")
    return file.path


def rows(frame: DataFrame) -> list[Row]:
    return frame.orderBy("session", "number").collect()


def test_what_is_written_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Events come back as they were written, with their place in the session and their time."""
    with HistoryFile(tmp_path, "a") as file:
        file.add("published", "news", publisher="p", publisher_count=1, message="häagen \n dazs")
        file.add("delivered", "news", partition=2, offset=5, subscriber="s", redelivered=True)
    events = history.read(spark, str(tmp_path))
    assertSchemaEqual(events.schema, spark.createDataFrame([], history.SCHEMA).schema)
    first, second = rows(events)
    assert first.time <= second.time
    assert first.asDict() | {"time": None} == {
        "event": "published",
        "session": "a",
        "number": 1,
        "time": None,
        "topic": "news",
        "partition": None,
        "offset": None,
        "publisher": "p",
        "publisher_count": 1,
        "message": "häagen \n dazs",
        "subscriber": None,
        "redelivered": False,
    }
    assert (second.partition, second.offset, second.number, second.redelivered) == (2, 5, 2, True)


def test_a_half_last_line_is_skipped(spark: SparkSession, tmp_path: Path) -> None:
    """The history of a killed process is good up to the line it was writing."""
    path = written(tmp_path, "killed", 3)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b'"message"') - 1])
    written(tmp_path, "alive", 1)
    assert [(row.session, row.message) for row in rows(history.read(spark, str(tmp_path)))] == [
        ("alive", "m0"),
        ("killed", "m0"),
        ("killed", "m1"),
    ]


def test_every_event_is_on_disk_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing waits in the writer for the file to be closed: a kill would lose it."""
    file = HistoryFile(tmp_path, "open")
    file.add("published", "news", message="m")
    assert [row.message for row in rows(history.read(spark, str(tmp_path)))] == ["m"]
    file.close()


def test_a_session_is_written_once(tmp_path: Path) -> None:
    """A second life of a process does not continue the file of the first: it is another session."""
    written(tmp_path, "same", 1)
    with pytest.raises(FileExistsError):
        HistoryFile(tmp_path, "same")
    with HistoryFile(tmp_path) as one, HistoryFile(tmp_path) as other:
        assert one.path != other.path


def test_parquet_is_read_as_well(spark: SparkSession, tmp_path: Path) -> None:
    """Histories may be Parquet, beside JSON lines and in folders below, with fewer columns and with times
    of either kind."""
    written(tmp_path / "json", "lines", 1)
    events = history.read(spark, str(tmp_path))
    expected = rows(events)
    events.write.parquet(str(tmp_path / "parquet"))
    assert rows(history.read(spark, str(tmp_path / "parquet"))) == expected
    assert rows(history.read(spark, str(tmp_path))) == expected * 2
    few = spark.createDataFrame([("published", "news", 1_500_000)], "event string, topic string, time bigint")
    few.write.parquet(str(tmp_path / "few"))
    (row,) = rows(history.read(spark, str(tmp_path / "few")))
    assert (row.event, row.topic, row.time.timestamp(), row.offset, row.redelivered) == (
        "published",
        "news",
        1.5,
        None,
        False,
    )


def test_a_directory_without_histories_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """No events at all would look like a clean audit, so a wrong directory is an error."""
    with pytest.raises(NotAHistory, match="no files"):
        history.read(spark, str(tmp_path))
    with pytest.raises(NotAHistory, match="no histories in"):
        history.read(spark, str(tmp_path / "nowhere"))


def test_files_of_something_else_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Lines that are no events, or tables without the columns, are said to be so."""
    (tmp_path / "other.jsonl").write_text("".join(json.dumps({"a": n}) + "\n" for n in range(2)))
    with pytest.raises(NotAHistory, match="2 of its lines"):
        history.read(spark, str(tmp_path))
    spark.range(1).write.parquet(str(tmp_path / "parquet"))
    with pytest.raises(NotAHistory, match="not id"):
        history.read(spark, str(tmp_path / "parquet"))
