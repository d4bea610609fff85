"""Looking after the lake: compaction and expiry, alone and while others work."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nuncius.pipeline.lake import Lake, LakeFile, maintenance
from nuncius.pipeline.lake.maintenance import Compacted, Expired, compact, expire
from nuncius.pipeline.lake.table import Overtaken
from pipeline.lakes import BEGINNING, offsets, put, rows, write

A_CENTURY = timedelta(days=365 * 100)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path / "lake")
    made.create()
    return made


def ranges(lake: Lake) -> list[tuple[int, int, int]]:
    return [(file.partition_id, file.first, file.end) for file in Lake(lake.location).files()]


def since(entry: int) -> timedelta:
    """How long before now a moment is that lies just before an entry's arrival."""
    return timedelta(microseconds=time.time_ns() // 1000 - (BEGINNING + entry * 1_000_000) + 500_000)


def test_small_files_are_merged(lake: Lake) -> None:
    """Neighbouring small files of a partition become one; the same entries are read, in the same order."""
    put(lake, 0, 10, 1, size=3)
    put(lake, 10, 12, 1)
    put(lake, 0, 4, 2, size=1, topic="a/b c%=é")
    before = list(rows(lake.files()))
    done = compact(lake)
    assert (done.files_before, done.files_after) == (9, 2)
    assert done.bytes_before > done.bytes_after > 0
    assert ranges(lake) == [(1, 0, 12), (2, 0, 4)]
    after = Lake(lake.location)
    assert list(rows(after.files())) == before
    assert [file.topic for file in after.files()] == ["news", "a/b c%=é"]
    (first, _) = after.files()
    assert (first.first_time, first.last_time) == (BEGINNING, BEGINNING + 11_000_000)
    assert first.size == Path(lake.location, first.path).stat().st_size


def test_up_to_a_size(lake: Lake) -> None:
    """Merged files stay below the size that was asked for; those of half that size are left alone."""
    put(lake, 0, 5, size=5)
    put(lake, 5, 20, size=3)
    untouched = lake.files()[0].path
    compact(lake, file_rows=10)
    assert ranges(lake) == [(1, 0, 5), (1, 5, 14), (1, 14, 20)]
    assert Lake(lake.location).files()[0].path == untouched
    size = sum(file.size for file in Lake(lake.location).files())
    assert compact(lake, file_bytes=size // 10) == Compacted()


def test_nothing_to_merge(lake: Lake) -> None:
    """A second time there is nothing to do, and the table does not change."""
    put(lake, 0, 10, size=3)
    compact(lake)
    version = lake.version
    assert compact(lake) == Compacted()
    assert lake.version == version


def test_gaps_stay(lake: Lake) -> None:
    """Files with a gap between them are not merged, because a file has none."""
    put(lake, 0, 4, size=2)
    put(lake, 9, 12, size=1)
    compact(lake)
    assert ranges(lake) == [(1, 0, 4), (1, 9, 12)]


def test_merging_in_steps(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large lake is merged bit by bit, each bit a commit of its own."""
    monkeypatch.setattr(maintenance, "STEP_BYTES", 1)
    for partition_id in (1, 2, 3):
        put(lake, 0, 4, partition_id, size=2)
    version = lake.version
    compact(lake)
    assert lake.version == version + 3
    assert ranges(lake) == [(1, 0, 4), (2, 0, 4), (3, 0, 4)]


def test_archiving_meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is archived while files are merged is there afterwards, and so is what was merged."""
    put(lake, 0, 4, size=1)
    meanwhile(monkeypatch, lambda: put(Lake(lake.location), 4, 6))
    compact(lake)
    assert ranges(lake) == [(1, 0, 4), (1, 4, 6)]


def test_expiring_meanwhile(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that expired while they were merged do not come back."""
    put(lake, 0, 4, size=2)
    put(lake, 0, 4, 2, size=2)
    other = Lake(lake.location)
    meanwhile(monkeypatch, lambda: other.replace(other.files([1])[:1], []))
    assert compact(lake).files_before == 2
    assert ranges(lake) == [(1, 2, 4), (2, 0, 4)]


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Does something after files were merged and before that is committed."""
    swap = maintenance._swap  # noqa: SLF001 - the moment is inside

    def late(lake: Lake, merged: Any) -> Any:
        act()
        return swap(lake, merged)

    monkeypatch.setattr(maintenance, "_swap", late)


def test_readers_keep_their_version(lake: Lake) -> None:
    """Who began to read before files were merged or expired reads on."""
    put(lake, 0, 6, size=2)
    files = Lake(lake.location).files()
    compact(lake)
    expire(lake, timedelta(0))
    assert offsets(files) == list(range(6))


def test_old_files_go(lake: Lake) -> None:
    """Files whose entries are all old enough leave the table, from the front."""
    put(lake, 0, 10, 1, size=3)
    put(lake, 0, 10, 2, size=5)
    going = [file.size for file in lake.files() if file.end <= 6]
    done = expire(lake, since(7))
    assert done == Expired(entries=11, files=3, bytes=sum(going), swept=0)
    assert ranges(lake) == [(1, 6, 9), (1, 9, 10), (2, 5, 10)]
    assert Lake(lake.location).ends() == {1: 10, 2: 10}
    assert expire(lake, since(7)) == Expired()


def test_only_from_the_front(lake: Lake) -> None:
    """A file that is old but lies behind a younger one stays, so that no gap opens."""
    put(lake, 0, 3, 1)
    (younger,), (older,) = write(lake, 100, 103), write(lake, 103, 106)
    lake.append([younger, replace(older, first_time=BEGINNING, last_time=BEGINNING)], 1)
    expire(lake, since(50))
    assert ranges(lake) == [(1, 100, 103), (1, 103, 106)]


def test_everything_goes(lake: Lake) -> None:
    """When every entry is old the lake is empty, and still knows where it ends."""
    put(lake, 0, 10, 1, size=3)
    put(lake, 0, 4, 2)
    expire(lake, timedelta(0))
    assert ranges(lake) == []
    assert Lake(lake.location).ends() == {1: 10, 2: 4}
    put(lake, 10, 12, 1)
    assert Lake(lake.location).ends() == {1: 12, 2: 4}
    with pytest.raises(Overtaken):
        put(lake, 0, 1, 2)


def test_merging_while_expiring(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """If files are merged between the look and the commit, expiry looks again."""
    put(lake, 0, 6, size=2)
    put(lake, 6, 12)
    commit = Lake.replace

    def late(self: Lake, old: list[LakeFile], new: list[LakeFile]) -> bool:
        monkeypatch.undo()
        assert compact(Lake(lake.location), file_rows=12).files_before == 3
        return commit(self, old, new)

    monkeypatch.setattr(Lake, "replace", late)
    assert expire(lake, since(9)).files == 1
    assert ranges(lake) == [(1, 6, 12)]


def test_sweeping(lake: Lake) -> None:
    """Merged, expired and never committed files are removed once the time of grace is over, no sooner."""
    put(lake, 0, 6, size=2)
    put(lake, 6, 9)
    write(lake, 9, 12)
    compact(lake)
    assert len(files_on_disk(lake)) == 6
    assert expire(lake, A_CENTURY).swept == 0
    assert len(files_on_disk(lake)) == 6
    assert expire(lake, A_CENTURY, grace=timedelta(0)).swept == 5
    (left,) = Lake(lake.location).files()
    assert files_on_disk(lake) == [left.path]
    assert offsets([left]) == list(range(9))


def test_remains_of_failures(lake: Lake) -> None:
    """What a failed attempt left behind goes by its age; an attempt that is under way is left alone."""
    put(lake, 0, 2)
    (old,), (new,) = write(lake, 2, 4), write(lake, 2, 4)
    yesterday = time.time() - 90_000
    os.utime(Path(lake.location, old.path), (yesterday, yesterday))
    assert expire(lake, A_CENTURY).swept == 1
    assert new.path in files_on_disk(lake)
    assert old.path not in files_on_disk(lake)


def files_on_disk(lake: Lake) -> list[str]:
    root = Path(lake.location)
    return sorted(str(path.relative_to(root)) for path in root.glob("entries/*"))
