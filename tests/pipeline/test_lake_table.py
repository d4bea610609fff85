"""The lake's table: what it consists of, and that only one of two who change it at once succeeds."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from nuncius.pipeline.lake import Lake
from nuncius.pipeline.lake.table import APPLICATION, NotALake, Overtaken
from pipeline.lakes import BEGINNING, offsets, put, write


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "the lake")
    made.create()
    return made


def test_the_schema(lake: Lake) -> None:
    """The table has the columns of the source, then the publisher's count and the partition's number."""
    fields = [(field.name, field.type.to_json()) for field in DeltaTable(lake.location).schema().fields]
    strings = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
    assert [(name, json.loads(kind)) for name, kind in fields] == [
        ("topic", "string"),
        ("partition", "integer"),
        ("offset", "long"),
        ("key", "string"),
        ("value", "binary"),
        ("headers", strings),
        ("publisher", "string"),
        ("time", "timestamp"),
        ("publisher_count", "long"),
        ("partition_id", "integer"),
    ]


def test_other_programs_read_it(lake: Lake) -> None:
    """Whoever reads Delta tables sees every entry with all its columns."""
    put(lake, 0, 5, 1, topic="a/b c%=é")
    put(lake, 0, 5, 2, topic="news")
    table = DeltaTable(lake.location)
    rows = table.to_pyarrow_table(filters=[("topic", "=", "a/b c%=é")]).sort_by("offset").to_pylist()
    assert [(row["topic"], row["partition_id"], row["offset"]) for row in rows] == [
        ("a/b c%=é", 1, n) for n in range(5)
    ]
    assert rows[2]["headers"] == [("a", "2"), ("b", "")]
    assert rows[2]["value"] == b"\x00\xff2"
    assert int(rows[2]["time"].timestamp() * 1_000_000) == BEGINNING + 2_000_000
    assert table.count() == 10


def test_the_log_tells_the_ranges(lake: Lake) -> None:
    """Offsets and times of a file stand in the log, to the microsecond."""
    put(lake, 5, 8)
    (action,) = pa.table(DeltaTable(lake.location).get_add_actions(flatten=True)).to_pylist()
    assert (action["num_records"], action["min.offset"], action["max.offset"]) == (3, 5, 7)
    (file,) = lake.files()
    assert (file.first_time, file.last_time) == (BEGINNING + 5_000_000, BEGINNING + 7_000_000)


def test_files_in_order(lake: Lake) -> None:
    """Files come by partition and offset, for the partitions that are asked for."""
    put(lake, 0, 4, 2)
    put(lake, 0, 2, 1, size=1)
    put(lake, 4, 6, 2)
    put(lake, 0, 1, 3)
    found = [(file.partition_id, file.first, file.end) for file in lake.files([1, 2, 9])]
    assert found == [(1, 0, 1), (1, 1, 2), (2, 0, 4), (2, 4, 6)]
    assert [file.partition_id for file in lake.files()] == [1, 1, 2, 2, 3]
    assert lake.files([]) == []
    assert lake.ends() == {1: 2, 2: 6, 3: 1}


def test_one_view_at_a_time(lake: Lake) -> None:
    """Files and ends belong together, whatever happens between two questions; `refresh` looks again."""
    put(lake, 0, 4)
    reader = Lake(lake.location)
    assert reader.ends() == {1: 4}
    put(lake, 4, 9)
    assert [file.end for file in reader.files()] == [4]
    assert reader.ends() == {1: 4}
    reader.refresh()
    assert reader.ends() == {1: 9}


def test_thousands_of_files(lake: Lake) -> None:
    """A table of many files is looked at in one go: its log is enough."""
    (file,) = write(lake, 0, 1)
    many = [
        replace(file, path=f"entries/{n}", partition_id=1 + n % 50, first=n // 50, end=n // 50 + 1)
        for n in range(5000)
    ]
    lake.append(many, 0)
    fresh = Lake(lake.location)
    assert [f.first for f in fresh.files([7])] == list(range(100))
    assert fresh.ends() == dict.fromkeys(range(1, 51), 100)


def test_no_lake(tmp_path: Path) -> None:
    """Looking into a lake that is not there says so."""
    lake = Lake(tmp_path / "lake")
    assert not lake.exists()
    lake.refresh()
    with pytest.raises(NotALake, match="archive a topic first"):
        lake.ends()


def test_somebody_elses_table(tmp_path: Path) -> None:
    """A Delta table of another kind is refused."""
    DeltaTable.create(tmp_path / "other", pa.schema([("x", pa.int64())]))
    with pytest.raises(NotALake, match="was not made by nuncius"):
        Lake(tmp_path / "other").files()


def test_created_once(lake: Lake) -> None:
    """Making a lake that is there changes nothing."""
    put(lake, 0, 4)
    again = Lake(lake.location)
    again.create()
    assert again.ends() == {1: 4}


def test_a_round_is_numbered(lake: Lake) -> None:
    """Every round carries the application's name and its number, for whoever asks the table."""
    put(lake, 0, 4)
    put(lake, 4, 5)
    assert DeltaTable(lake.location).transaction_version(APPLICATION) == 2


def test_a_replayed_round(lake: Lake) -> None:
    """A round that is committed a second time is refused, and the table stays as it is."""
    files = write(lake, 0, 4)
    lake.append(files, 0)
    with pytest.raises(Overtaken):
        lake.append(files, 0)
    with pytest.raises(Overtaken):
        Lake(lake.location).append(write(lake, 0, 4), 0)
    assert offsets(Lake(lake.location).files()) == list(range(4))


def test_overlapping_entries(lake: Lake) -> None:
    """Entries that are there are not added again, even by somebody who counts rounds rightly."""
    put(lake, 0, 4)
    with pytest.raises(Overtaken):
        lake.append(write(lake, 3, 6), 1)
    assert lake.ends() == {1: 4}


def test_two_at_once(lake: Lake) -> None:
    """Of those who archive the same entries at the same moment, one succeeds."""
    writers = 4
    together = Barrier(writers)

    def archive(mine: Lake) -> int:
        won = 0
        try:
            for round_ in range(10):
                files = write(mine, round_ * 3, round_ * 3 + 3)
                together.wait()
                mine.refresh()
                with suppress(Overtaken):
                    mine.append(files, round_)
                    won += 1
                together.wait()
        except BrokenBarrierError:
            return won  # somebody else has failed, and says why
        except BaseException:
            together.abort()
            raise
        return won

    with ThreadPoolExecutor(writers) as threads:
        assert sum(threads.map(archive, [Lake(lake.location) for _ in range(writers)])) == 10
    lake.refresh()
    assert offsets(lake.files()) == list(range(30))


def test_somebody_else_is_faster(lake: Lake) -> None:
    """A commit that comes second to one about other things is made again on top of it."""
    put(lake, 0, 4, 1)
    late = Lake(lake.location)
    assert late.rounds == 1
    assert lake.mark({9: 5})
    late.append(write(lake, 4, 6), 1)
    assert late.ends() == {1: 6, 9: 5}


def test_nothing_is_hidden(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that fails although nobody else committed is an error, not a reason to try for ever."""

    def refuse(*_: object, **__: object) -> None:
        raise CommitFailedError("no space left")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", refuse)
    with pytest.raises(CommitFailedError, match="no space left"):
        lake.append(write(lake, 0, 4), 0)


def test_leftovers_are_invisible(lake: Lake) -> None:
    """Files that nobody committed are in no reader's way."""
    write(lake, 0, 4)
    assert lake.files() == []
    assert lake.ends() == {}
    assert DeltaTable(lake.location).count() == 0


def test_ends_are_kept(lake: Lake) -> None:
    """Marked ends stay when other things change, and give way to later ones."""
    put(lake, 0, 4)
    assert lake.mark({1: 4, 2: 7})
    assert lake.mark({3: 1})
    put(lake, 4, 5)
    assert Lake(lake.location).ends() == {1: 5, 2: 7, 3: 1}


def test_a_mark_that_comes_late(lake: Lake) -> None:
    """Somebody who has not seen the last change cannot mark anything, and has seen it afterwards."""
    late = Lake(lake.location)
    assert late.marks() == {}
    assert lake.mark({1: 4})
    assert not late.mark({2: 7})
    assert late.mark({2: 7})
    assert late.marks() == {1: 4, 2: 7}
