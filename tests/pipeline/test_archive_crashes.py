"""The archive when things go wrong: whatever breaks off, and wherever, every entry is in the table once."""

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from nuncius.pipeline import place
from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.jobs import archive as job
from nuncius.pipeline.jobs.job import Context
from nuncius.pipeline.lake import Lake, LakeFile, ledger
from nuncius.pipeline.lake.archive import Archive
from nuncius.pipeline.lake.maintenance import compact, expire
from nuncius.pipeline.lake.table import Overtaken
from nuncius.pipeline.source.subscription import StreamSubscription
from pipeline.archiving import archive, archived, confirmed, ranges
from pipeline.filling import fill, partition_ids, sql, value


class Crash(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[], object]) -> None:
    """Does something just before a method is called for the first time."""
    method = getattr(owner, name)

    def late(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(owner, name, method)
        act()
        return method(*arguments, **named)

    monkeypatch.setattr(owner, name, late)


def crash() -> None:
    raise Crash


def entries(lake: Path) -> list[tuple[int, int]]:
    return [(row["partition_id"], row["offset"]) for row in archived(lake)]


def test_before_the_commit(
    spark: SparkSession, dsn: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were written and not committed are seen by nobody; the next run writes others."""
    fill(dsn, "news", 10)
    before(monkeypatch, Lake, "append", crash)
    with pytest.raises(Crash):
        archive(spark, dsn, lake)
    assert len(list(lake.glob("entries/*"))) == 1
    assert archived(lake) == []
    assert confirmed(dsn) == {}
    archive(spark, dsn, lake)
    assert len(list(lake.glob("entries/*"))) == 2
    assert [offset for _, offset in entries(lake)] == list(range(10))


def test_before_the_confirmation(
    spark: SparkSession, dsn: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed and not confirmed is not archived again, and the next run confirms it."""
    fill(dsn, "news", 10)
    confirm = StreamSubscription.confirm

    def only_what_is_old(_: StreamSubscription, done: Any) -> None:
        if list(done):
            raise Crash

    monkeypatch.setattr(StreamSubscription, "confirm", only_what_is_old)
    with pytest.raises(Crash):
        archive(spark, dsn, lake)
    assert confirmed(dsn) == {}
    monkeypatch.setattr(StreamSubscription, "confirm", confirm)
    assert archive(spark, dsn, lake).rows_written == 0
    assert confirmed(dsn) == {partition_ids(dsn, "news")[1]: 10}
    assert [offset for _, offset in entries(lake)] == list(range(10))


def test_a_task_fails(spark: SparkSession, dsn: str, lake: Path) -> None:
    """When tasks cannot write their files nothing is archived, and nothing is confirmed."""
    fill(dsn, "news", 10)
    Lake(lake).create()
    (lake / "entries").write_text("in the way")
    with pytest.raises(Exception, match="entries"):
        archive(spark, dsn, lake)
    assert archived(lake) == []
    assert confirmed(dsn) == {}
    (lake / "entries").unlink()
    assert archive(spark, dsn, lake).rows_written == 10


def test_two_runs(spark: SparkSession, dsn: str, lake: Path) -> None:
    """While one run archives another one is told so; when that one is gone, killed or not, it may."""
    fill(dsn, "news", 10)
    with place.connect(dsn) as other:
        assert other.value("select pg_try_advisory_lock($1, 1)", ledger.LOCK)
        with pytest.raises(ledger.ArchiveRuns, match="another run archives"):
            archive(spark, dsn, lake)
    assert archive(spark, dsn, lake).rows_written == 10


def test_overtaken(spark: SparkSession, dsn: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another run comes in between all the same, what it archived is not archived again."""
    fill(dsn, "news", 10)
    fill(dsn, "more", 10)
    said = []

    def faster() -> None:
        monkeypatch.setattr(ledger, "LOCK", ledger.LOCK + 100)  # as if the lock were lost
        archive(spark, dsn, lake, topic="news")

    before(monkeypatch, Lake, "append", faster)
    settings = {"lake": str(lake)}
    summary = job.JOB.run(Context(spark, dsn, settings, show=lambda text, *_: said.append(text)))
    assert summary.rows_written == 10
    assert said == ["archiving", "another run archives, too: looking again", "archiving"]
    assert [offset for _, offset in entries(lake)] == [*range(10), *range(10)]


def test_many_runs_at_once(
    spark: SparkSession, dsn: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock, runs that archive at the same time still archive every entry once between them."""
    runs = 3
    fill(dsn, "news", 100, partitions=2)
    archive(spark, dsn, lake, topicPattern="none")
    monkeypatch.setattr(ledger, "alone", place.connect)
    ready, first = threading.Barrier(runs), threading.local()
    append = Lake.append

    def at_once(self: Lake, files: list[LakeFile], rounds: int) -> None:
        if not hasattr(first, "done"):
            first.done = ready.wait(60)
        append(self, files, rounds)

    monkeypatch.setattr(Lake, "append", at_once)
    with ThreadPoolExecutor(runs) as threads:
        work = [threads.submit(archive, spark, dsn, lake, rowsPerRound=50) for _ in range(runs)]
    assert sum(run.result().rows_written for run in work) == 200
    assert [offset for _, offset in entries(lake)] == [*range(100), *range(100)]
    assert list(confirmed(dsn).values()) == [100, 100]


def test_a_replayed_commit(
    spark: SparkSession, dsn: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit whose answer was lost, and which is made again, changes nothing."""
    fill(dsn, "news", 10)
    kept: list[tuple[list[LakeFile], int]] = []
    append = Lake.append

    def noted(self: Lake, files: list[LakeFile], rounds: int) -> None:
        kept.append((files, rounds))
        append(self, files, rounds)

    monkeypatch.setattr(Lake, "append", noted)
    archive(spark, dsn, lake)
    ((files, rounds),) = kept
    with pytest.raises(Overtaken):
        append(Lake(lake), files, rounds)
    assert [offset for _, offset in entries(lake)] == list(range(10))


def test_compacted_meanwhile(
    spark: SparkSession, dsn: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files may be merged, or expire, while a round is under way: both are done afterwards."""
    fill(dsn, "news", 4)
    archive(spark, dsn, lake, rowsPerRound=1)
    fill(dsn, "news", 4)
    before(monkeypatch, Lake, "_commit", lambda: compact(Lake(lake)))
    archive(spark, dsn, lake)
    (partition_id,) = partition_ids(dsn, "news").values()
    assert ranges(lake) == [(partition_id, 0, 4), (partition_id, 4, 8)]
    fill(dsn, "news", 4)
    before(monkeypatch, Lake, "_commit", lambda: expire(Lake(lake), timedelta(0)))
    archive(spark, dsn, lake)
    assert ranges(lake) == [(partition_id, 8, 12)]


def test_everything_expired(spark: SparkSession, dsn: str, lake: Path) -> None:
    """An entry that was archived and has expired is not archived again, though the store still has it."""
    fill(dsn, "news", 4)
    archive(spark, dsn, lake)
    expire(Lake(lake), timedelta(0))
    assert archive(spark, dsn, lake).rows_written == 0
    fill(dsn, "news", 2)
    assert archive(spark, dsn, lake).rows_written == 2
    assert [(first, end) for _, first, end in ranges(lake)] == [(4, 6)]


def test_purged_while_it_is_read(
    spark: SparkSession, dsn: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is purged after the look is no loss: what could be read is archived, and the run ends."""
    fill(dsn, "news", 10)

    def purge() -> None:
        value(dsn, "select nuncius.purge_topic('news')")
        while value(dsn, "select nuncius.collect()"):
            pass
        fill(dsn, "news", 3)

    before(monkeypatch, Archive, "round", purge)
    assert archive(spark, dsn, lake).rows_written == 0
    assert archive(spark, dsn, lake).rows_written == 3


def test_deleted_while_it_is_read(
    spark: SparkSession, dsn: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same goes for a topic that is deleted, and it is not made again."""
    fill(dsn, "news", 10)

    def delete() -> None:
        value(dsn, "select nuncius.delete_topic('news')")
        while value(dsn, "select nuncius.collect()"):
            pass

    before(monkeypatch, Archive, "round", delete)
    assert archive(spark, dsn, lake).rows_written == 0
    assert value(dsn, "select count(*) from nuncius.topics") == 0


@pytest.mark.parametrize(
    ("gone", "complaint"),
    [("entry_offset >= 7", "from offset 7 to 9 could not be read"), ("entry_offset = 5", "came 9 entries")],
)
def test_entries_that_vanish(
    spark: SparkSession,
    dsn: str,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
    gone: str,
    complaint: str,
) -> None:
    """Entries that are gone for no reason stop the run before it commits: confirming would lose the rest."""
    fill(dsn, "news", 10)
    before(monkeypatch, Archive, "round", lambda: sql(dsn, f"delete from nuncius.entries where {gone}"))
    with pytest.raises(Exception, match=complaint):
        archive(spark, dsn, lake)
    assert archived(lake) == []
    assert confirmed(dsn) == {}


def test_executors_elsewhere(
    spark: SparkSession, dsn: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that executors wrote where nobody else sees them are not committed: retention would drop the
    only copy that can be read."""
    fill(dsn, "news", 10)

    def to_another_machine() -> None:
        (lake / "entries").rename(lake.parent / "elsewhere")

    before(monkeypatch, Archive, "_see", to_another_machine)
    with pytest.raises(InvalidOption, match="where all machines of the cluster reach it"):
        archive(spark, dsn, lake)
    assert archived(lake) == []
    assert confirmed(dsn) == {}


def test_a_lost_lake(spark: SparkSession, dsn: str, lake: Path) -> None:
    """There is no checkpoint to disagree with the table: if that is lost, what the store has is archived."""
    fill(dsn, "news", 10)
    archive(spark, dsn, lake)
    shutil.rmtree(lake)
    assert archive(spark, dsn, lake).rows_written == 10
    assert [offset for _, offset in entries(lake)] == list(range(10))
