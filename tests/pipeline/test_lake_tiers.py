"""History and live entries as one table: whatever is archived, dropped and published, every offset is read
once and in order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from nuncius.pipeline.lake import Lake
from nuncius.pipeline.lake.maintenance import compact
from nuncius.pipeline.source.schema import EXTRA, SCHEMA
from pipeline.archiving import archive
from pipeline.filling import fill, partition_ids, publish, value

WHOLE = StructType([*SCHEMA, *EXTRA])


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def read(spark: SparkSession, dsn: str, tier: str, **options: object) -> list[dict[str, Any]]:
    """What the source reads, by partition and in the order in which it reads it."""
    given = {"topic": "news", **{name: str(value) for name, value in options.items()}}
    reader = spark.read.format("nuncius").schema(WHOLE).options(store=dsn, tier=tier, **given)
    rows = [row.asDict() for row in reader.load().collect()]
    return sorted(rows, key=lambda row: row["partition_id"])


def offsets(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in rows]


def drop(dsn: str) -> None:
    """Lets retention drop everything it may."""
    value(dsn, "select nuncius.set_retention('news', 'size', null, 1)")
    while value(dsn, "select nuncius.collect()"):
        pass


def both(end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in (1, 2) for offset in range(end)]


def test_no_seam(spark: SparkSession, dsn: str, lake: Path) -> None:
    """Archived, dropped, published: the whole history reads the same before and after each."""
    fill(dsn, "news", 10, partitions=2)
    archive(spark, dsn, lake)
    fill(dsn, "news", 5)
    before = read(spark, dsn, "all")
    assert offsets(before) == both(15)
    drop(dsn)
    assert offsets(read(spark, dsn, "live")) == [(p, n) for p in (1, 2) for n in range(10, 15)]
    assert read(spark, dsn, "all") == before
    fill(dsn, "news", 5)
    assert offsets(read(spark, dsn, "lake")) == both(10)
    assert offsets(read(spark, dsn, "all")) == both(20)
    archive(spark, dsn, lake, rowsPerRound=3)
    drop(dsn)
    compact(Lake(lake))
    assert read(spark, dsn, "live") == []
    assert offsets(read(spark, dsn, "all")) == both(20)
    assert read(spark, dsn, "all")[:10] == before[:10]


def test_the_same_rows_from_both(spark: SparkSession, dsn: str, lake: Path) -> None:
    """An entry is the same whether it comes from the store or from the lake, in every column."""
    fill(dsn, "news", 1)
    publish(dsn, "news", [b"\x00\xff", b""], keys=["k", None], headers=[{"a": "ü"}, None], publisher="al")
    live = read(spark, dsn, "live")
    archive(spark, dsn, lake)
    assert read(spark, dsn, "lake") == live
    assert live[1]["headers"] == {"a": "ü"}


def test_ranges_across_the_seam(spark: SparkSession, dsn: str, lake: Path) -> None:
    """A range of offsets may begin in the lake and end in the store, and is read by several tasks."""
    fill(dsn, "news", 10)
    archive(spark, dsn, lake, rowsPerRound=4)
    drop(dsn)
    fill(dsn, "news", 10)
    found = read(
        spark,
        dsn,
        "all",
        startingOffsets='{"news": {"1": 3}}',
        endingOffsets='{"news": {"1": 17}}',
        rowsPerSlice=5,
    )
    assert sorted(offsets(found)) == [(1, n) for n in range(3, 17)]


@pytest.mark.parametrize("collected", [False, True])
def test_between_commit_and_confirmation(
    spark: SparkSession, dsn: str, lake: Path, monkeypatch: pytest.MonkeyPatch, collected: bool
) -> None:
    """In the middle of a run, when a round is committed and not yet confirmed, nothing is read twice."""
    fill(dsn, "news", 10, partitions=2)
    archive(spark, dsn, lake)
    if collected:
        drop(dsn)
    fill(dsn, "news", 5)
    seen = []
    looking(monkeypatch, lambda: seen.append(offsets(read(spark, dsn, "all"))))
    archive(spark, dsn, lake, rowsPerRound=6)
    assert seen == [both(15)] * 2


def looking(monkeypatch: pytest.MonkeyPatch, look: Callable[[], object]) -> None:
    """Does something after every commit of a round, before it is confirmed."""
    append = Lake.append

    def then(self: Lake, files: Any, rounds: int) -> None:
        append(self, files, rounds)
        look()

    monkeypatch.setattr(Lake, "append", then)


def test_the_same_name_again(spark: SparkSession, dsn: str, lake: Path) -> None:
    """A topic that was deleted and made again has no history: that of the old one is not its own."""
    fill(dsn, "news", 10)
    archive(spark, dsn, lake)
    value(dsn, "select nuncius.delete_topic('news')")
    fill(dsn, "news", 3)
    (new,) = partition_ids(dsn, "news").values()
    for _ in range(2):
        rows = read(spark, dsn, "all")
        assert [(row["partition_id"], row["offset"]) for row in rows] == [(new, n) for n in range(3)]
        archive(spark, dsn, lake)
        drop(dsn)


def test_without_a_lake(spark: SparkSession, dsn: str) -> None:
    """Where nothing was archived yet, the whole history is what is live."""
    fill(dsn, "news", 3)
    assert offsets(read(spark, dsn, "all")) == [(1, 0), (1, 1), (1, 2)]


def test_a_stream_over_the_seam(spark: SparkSession, dsn: str, lake: Path, tmp_path: Path) -> None:
    """A stream that begins in the lake goes on in the store, over batches and restarts."""
    fill(dsn, "news", 10)
    archive(spark, dsn, lake)
    drop(dsn)
    fill(dsn, "news", 5)
    written = tmp_path / "written"
    for more in (0, 4):
        fill(dsn, "news", more)
        stream = spark.readStream.format("nuncius").options(
            store=dsn, tier="all", topic="news", maxRowsPerBatch="6"
        )
        query = (
            stream.load()
            .select("offset")
            .writeStream.format("json")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(written))
        )
        query.awaitTermination()
    found = sorted(row["offset"] for row in spark.read.json(str(written)).collect())
    assert found == list(range(19))
