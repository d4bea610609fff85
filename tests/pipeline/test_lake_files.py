"""Files of the lake: written in order, read from any offset to any other."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nuncius.pipeline.lake import Lake, storage, writer
from nuncius.pipeline.lake.files import COLUMNS, STORED, read
from pipeline.lakes import BEGINNING, entries, target, write


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def test_a_file_keeps_its_entries(lake: Lake) -> None:
    """What is written is read again to the last bit, with the columns that are the same in every row."""
    (file,) = write(lake, 10, 30, 7, topic="a/b c%=é")
    (batch,) = read(file, 0, 1000, COLUMNS.names)
    assert batch.schema.equals(COLUMNS)
    constants = {"topic": "a/b c%=é", "partition": 1, "partition_id": 7}
    assert batch.to_pylist() == [
        {name: (row | constants)[name] for name in COLUMNS.names} for row in entries(10, 30).to_pylist()
    ]


def test_a_file_is_described(lake: Lake) -> None:
    """A file's description tells its range of offsets and times, its size, and where it is."""
    (file,) = write(lake, 10, 30, 7)
    assert (file.partition_id, file.first, file.end, file.rows) == (7, 10, 30, 20)
    assert (file.first_time, file.last_time) == (BEGINNING + 10_000_000, BEGINNING + 29_000_000)
    assert file.size == Path(lake.location, file.path).stat().st_size
    assert file.path.startswith("entries/7-00000000000000000010-")


def test_times_out_of_order(lake: Lake) -> None:
    """A clock that was set back does not make a file's range of times wrong."""
    times = [BEGINNING + n for n in (5, 9, 1, 4)]
    batch = entries(0, 4).set_column(5, STORED.field("time"), pa.array(times, STORED.field("time").type))
    (file,) = writer.write(target(lake), [batch.slice(0, 2), batch.slice(2)])
    assert (file.first_time, file.last_time) == (BEGINNING + 1, BEGINNING + 9)


@pytest.mark.parametrize(("start", "end"), list(itertools.combinations([0, 6, 9, 10, 25, 40], 2)))
def test_ranges(lake: Lake, start: int, end: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any range of offsets is read exactly, wherever it lies to the groups of rows in the file."""
    monkeypatch.setattr(writer, "GROUP_ROWS", 4)
    (file,) = writer.write(target(lake), (entries(n, n + 2) for n in range(6, 26, 2)))
    assert pq.ParquetFile(Path(lake.location, file.path)).num_row_groups == 5
    read_now = [offset for batch in read(file, start, end, ["offset"]) for offset in _offsets(batch)]
    assert read_now == list(range(max(start, 6), min(end, 26)))


def _offsets(batch: pa.RecordBatch) -> list[int]:
    found: list[int] = batch.column("offset").to_pylist()
    return found


def test_only_what_is_asked_for(lake: Lake) -> None:
    """Columns come in the order in which they are named; those that are not in the file suffice."""
    (file,) = write(lake, 0, 3)
    (batch,) = read(file, 1, 3, ["time", "partition", "key"])
    assert batch.schema.names == ["time", "partition", "key"]
    (batch,) = read(file, 1, 3, ["topic"])
    assert batch.to_pylist() == [{"topic": "news"}] * 2


def test_groups_are_bounded_by_bytes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries with large bodies make groups of few rows, so that no reader needs much memory."""
    monkeypatch.setattr(writer, "GROUP_BYTES", 1)
    (file,) = writer.write(target(lake), [entries(0, 2), entries(2, 4)])
    metadata = pq.ParquetFile(Path(lake.location, file.path)).metadata
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [2, 2]


def test_a_new_file_when_one_is_full(lake: Lake) -> None:
    """A file ends when it has enough entries or bytes; the next goes on where it ended."""
    by_rows = replace(target(lake), file_rows=5)
    files = list(writer.write(by_rows, (entries(n, n + 2) for n in range(0, 14, 2))))
    assert [(file.first, file.end) for file in files] == [(0, 6), (6, 12), (12, 14)]
    by_bytes = replace(target(lake), file_bytes=1)
    files = list(writer.write(by_bytes, [entries(0, 2), entries(2, 4)]))
    assert [(file.first, file.end) for file in files] == [(0, 2), (2, 4)]


def test_nothing_to_write(lake: Lake) -> None:
    """No entries make no file."""
    assert list(writer.write(target(lake), [])) == []
    assert list(writer.write(target(lake), [entries(0, 0)])) == []
    assert not Path(lake.location).exists()


def test_a_new_file_after_a_gap(lake: Lake) -> None:
    """Where entries are missing a file ends and another begins, for a file has no gap."""
    files = list(writer.write(target(lake), [entries(0, 4), entries(4, 6), entries(9, 11)]))
    assert [(file.first, file.end) for file in files] == [(0, 6), (9, 11)]


@pytest.mark.parametrize("second", [(3, 6), (0, 2)])
def test_out_of_order(lake: Lake, second: tuple[int, int]) -> None:
    """Entries that come again, or late, are refused, and nothing is left behind."""
    with pytest.raises(writer.OutOfOrder, match="after offset 3 came"):
        list(writer.write(target(lake), [entries(0, 4), entries(*second)]))
    assert _files(lake) == []


def test_a_gap_inside(lake: Lake) -> None:
    """The same goes for a batch whose entries are not one after the other."""
    batch = pa.Table.from_batches([entries(0, 2), entries(5, 6)]).combine_chunks().to_batches()[0]
    with pytest.raises(writer.OutOfOrder, match="came 3 entries from 0 to 5"):
        list(writer.write(target(lake), [batch]))


def test_a_failure_leaves_nothing_behind(lake: Lake) -> None:
    """When the entries cannot be read to their end, the half file is removed."""

    def breaking() -> Iterator[pa.RecordBatch]:
        yield entries(0, 4)
        raise ConnectionError("the store is gone")

    with pytest.raises(ConnectionError):
        list(writer.write(target(lake), breaking()))
    assert _files(lake) == []


def _files(lake: Lake) -> list[Path]:
    return [path for path in Path(lake.location).rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/data/lake/", "/data/lake"),
        ("file:///data/the%20lake", "/data/the lake"),
        ("s3://bucket/lake/", "s3://bucket/lake"),
    ],
)
def test_locations(given: str, expected: str) -> None:
    """A lake lies in a directory or in an object store, and is written down in one way."""
    assert storage.normal(given) == expected
    assert storage.is_local(expected) == (not expected.startswith("s3"))


def test_a_relative_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path means the same wherever it is used later."""
    monkeypatch.chdir(tmp_path)
    assert Lake("lake").location == str(tmp_path / "lake")


def test_through_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are written and read through deltalake's own storage layer, which serves all object stores."""
    monkeypatch.setattr(storage, "normal", str)
    lake = Lake((tmp_path / "lake").as_uri())
    (tmp_path / "lake").mkdir()
    (file,) = write(lake, 0, 10)
    assert not storage.is_local(file.location)
    (batch,) = read(file, 3, 7, ["offset", "value"])
    assert batch.to_pylist() == [{"offset": n, "value": b"\x00\xff%d" % n} for n in range(3, 7)]
