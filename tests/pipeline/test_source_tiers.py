"""What comes from the store and what from the lake, when there is something wrong with either."""

from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from nuncius.pipeline.errors import DataLoss, PipelineError
from nuncius.pipeline.lake import Lake
from nuncius.pipeline.source.schema import EXTRA, SCHEMA
from nuncius.pipeline.source.slices import ReadSlice
from pipeline.filling import create, drop_before, fill, partition_ids, sql
from pipeline.lakes import BEGINNING, put
from pipeline.reading import batch_reader, everything, stream_reader


@pytest.fixture
def lake(dsn: str, tmp_path: Path) -> Lake:
    """The store's lake, with nothing in it; the times of what is put there are in 2023."""
    made = Lake(tmp_path / "lake")
    made.create()
    sql(dsn, "insert into nuncius.lakes (lake_name, location) values ('main', $1)", made.location)
    return made


def archived(dsn: str, lake: Lake, first: int, end: int) -> None:
    put(lake, first, end, partition_ids(dsn, "news")[1])


def read(dsn: str, **options: object) -> list[int]:
    """The offsets, in the order of tasks."""
    reader = batch_reader(dsn, topic="news", **options)
    return [
        row["offset"]
        for task in reader.partitions()
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]


def ms(offset: int) -> int:
    """When an entry in the lake was published."""
    return BEGINNING // 1000 + offset * 1000


def test_a_slice_takes_each_offset_from_where_it_is(dsn: str, lake: Lake) -> None:
    """From files where there are some, else from the store: before, between and after them."""
    fill(dsn, "news", 30)
    archived(dsn, lake, 5, 10)
    archived(dsn, lake, 15, 20)
    reader = batch_reader(dsn, topic="news", tier="all", rowsPerSlice=12)
    tasks = [task for task in reader.partitions() if isinstance(task, ReadSlice)]
    assert [[(part.start, part.end, part.file is not None) for part in task.parts] for task in tasks] == [
        [(0, 5, False), (5, 10, True), (10, 12, False)],
        [(12, 15, False), (15, 20, True), (20, 24, False)],
        [(24, 30, False)],
    ]
    assert read(dsn, tier="all", rowsPerSlice=12) == list(range(30))
    assert read(dsn, tier="lake", endingOffsets='{"news": {"1": 10}}') == list(range(5, 10))


def test_the_schema_is_the_same(dsn: str, lake: Lake) -> None:
    """Narrow or whole, batches of the lake have the declared columns to the letter."""
    fill(dsn, "news", 10)
    archived(dsn, lake, 0, 5)
    for schema in (
        SCHEMA,
        StructType([*EXTRA, *SCHEMA]),
        StructType([SCHEMA["key"]]),
        StructType([SCHEMA["topic"]]),
    ):
        reader = batch_reader(dsn, schema, topic="news", tier="all", rowsPerSlice=5)
        shapes = {batch.schema for task in reader.partitions() for batch in reader.read(task)}
        assert len(shapes) == 1
        assert everything(reader).num_rows == 10


def test_a_hole_between_lake_and_store_is_a_loss(
    dsn: str, lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """Entries that retention dropped before they were archived are in neither."""
    fill(dsn, "news", 20)
    archived(dsn, lake, 0, 10)
    drop_before(dsn, "news", 15)
    with pytest.raises(DataLoss, match="the entries from offset 10 to 14 are gone: retention has come to 15"):
        read(dsn, tier="all")
    assert read(dsn, tier="all", failOnDataLoss=False) == [*range(10), *range(15, 20)]
    assert "10 to 14 are gone" in caplog.text
    assert read(dsn, tier="all", startingOffsets='{"news": {"1": 15}}') == list(range(15, 20))
    with pytest.raises(DataLoss, match="and was to be read up to 12"):
        read(dsn, tier="lake", endingOffsets='{"news": {"1": 12}}')


def test_a_hole_in_the_lake_is_a_loss_where_only_the_lake_is_read(dsn: str, lake: Lake) -> None:
    """The store may have it, but was not asked."""
    fill(dsn, "news", 20)
    archived(dsn, lake, 0, 5)
    archived(dsn, lake, 8, 10)
    with pytest.raises(
        DataLoss, match="the entries from offset 5 to 7 are gone: the lake does not have them"
    ):
        read(dsn, tier="lake")
    assert read(dsn, tier="lake", failOnDataLoss=False) == [*range(5), 8, 9]


def test_a_file_with_fewer_rows_than_it_should_have_is_a_loss(dsn: str, lake: Lake) -> None:
    """The table and the file do not agree."""
    create(dsn, "news")
    archived(dsn, lake, 0, 10)
    reader = batch_reader(dsn, topic="news", tier="lake")
    (task,) = reader.partitions()
    assert isinstance(task, ReadSlice)
    (part,) = task.parts
    assert part.file is not None
    Path(lake.location, part.file.path).write_bytes(
        Path(other_file(dsn, lake, first=100, end=106)).read_bytes()
    )
    with pytest.raises(DataLoss, match="4 entries from offset 0 to 9 are not in the file"):
        list(reader.read(task))


def other_file(dsn: str, lake: Lake, first: int, end: int) -> Path:
    archived(dsn, lake, first, end)
    return Path(lake.location, lake.files()[-1].path)


def test_times_are_exact_in_the_lake_and_across_the_seam(dsn: str, lake: Lake) -> None:
    """Entries of the lake arrived a second apart in 2023, those of the store now."""
    fill(dsn, "news", 30)
    archived(dsn, lake, 0, 10)
    archived(dsn, lake, 10, 20)
    drop_before(dsn, "news", 20)
    assert read(dsn, tier="all", startingTimestamp=ms(13)) == list(range(13, 30))
    assert read(dsn, tier="all", startingTimestamp=ms(13) - 1, endingTimestamp=ms(15) + 1) == [13, 14, 15]
    assert read(dsn, tier="all", endingTimestamp=ms(3)) == [0, 1, 2]
    assert read(dsn, tier="lake", startingTimestamp=ms(18)) == [18, 19]
    assert read(dsn, tier="lake", startingTimestamp=ms(20)) == []
    assert read(dsn, tier="lake", endingTimestamp=ms(0)) == []
    assert read(dsn, tier="all", startingTimestamp=ms(1000)) == list(range(20, 30))


def test_a_stream_begins_in_the_lake(dsn: str, lake: Lake) -> None:
    """At its first entry, at the first of a time, or at the end; and with the lake alone, it ends there."""
    fill(dsn, "news", 30)
    archived(dsn, lake, 0, 20)
    drop_before(dsn, "news", 20)
    with stream_reader(dsn, topic="news", tier="all") as reader:
        start = reader.initialOffset()
        assert start["news"]["1"] == 0
        end = reader.latestOffset(start, ReadAllAvailable())
        tasks = reader.partitions(start, end)
        seen = [row["offset"] for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
        assert seen == list(range(30))
    with stream_reader(dsn, topic="news", tier="all", startingTimestamp=ms(7)) as reader:
        assert reader.initialOffset()["news"]["1"] == 7
    with stream_reader(dsn, topic="news", tier="lake", startingOffsets="latest") as reader:
        assert reader.initialOffset()["news"]["1"] == 20


def test_a_topic_that_was_never_archived_has_an_empty_history(dsn: str, lake: Lake) -> None:
    """The lake has nothing of it, and everything is in the store."""
    fill(dsn, "news", 5)
    assert lake.files() == []
    assert read(dsn, tier="lake") == []
    assert read(dsn, tier="all") == list(range(5))


def test_a_lake_that_is_not_there_is_said(dsn: str, tmp_path: Path) -> None:
    """Where only the lake is asked for; else what is in the store is all there is."""
    fill(dsn, "news", 5)
    with pytest.raises(PipelineError, match="there is no lake at"):
        read(dsn, tier="lake", lake=tmp_path / "nowhere")
    assert read(dsn, tier="all", lake=tmp_path / "nowhere") == list(range(5))
