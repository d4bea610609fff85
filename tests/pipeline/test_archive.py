"""The archive: everything of the topics that were asked for is in the table, as it was, once."""

import json
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from nuncius.pipeline.catalogue import look, stores
from nuncius.pipeline.errors import DataLoss, InvalidOption, NoSuchTopic
from nuncius.pipeline.jobs import archive as job
from nuncius.pipeline.jobs import find
from nuncius.pipeline.jobs.job import Context
from nuncius.pipeline.lake import Lake, LakeFile
from nuncius.pipeline.lake.archive import Archive, copy
from nuncius.pipeline.lake.stretches import LakeStretch
from nuncius.pipeline.source.options import moment, parse
from pipeline.archiving import archive, archived, confirmed, ranges, stored
from pipeline.filling import create, drop_before, fill, partition_ids, publish, sql, value
from pipeline.lakes import offsets

AWKWARD = "a/b c%=é"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def test_everything_as_it_was(spark: SparkSession, dsn: str, lake: Path) -> None:
    """Keys, values, headers, publishers, counts and times come out as they went in, to the microsecond."""
    create(dsn, AWKWARD, 2)
    create(dsn, "nothing in it")
    publish(dsn, AWKWARD, [b"\x00\xff\n", b"", "é"], keys=["k", None, ""], publisher="alice", count=7)
    publish(dsn, AWKWARD, [b"x", b"y"], partition=2, headers=[{"a": "1", "ü": ""}, None])
    summary = archive(spark, dsn, lake)
    rows = archived(lake)
    for row in rows:
        row["headers"] = None if row["headers"] is None else dict(row["headers"])
    expected = stored(dsn)
    for row in expected:
        row["headers"] = None if row["headers"] is None else json.loads(row["headers"])
    assert rows == expected
    assert [row["publisher_count"] for row in rows] == [7, 8, 9, None, None]
    assert rows[3]["headers"] == {"a": "1", "ü": ""}
    assert (summary.rows_read, summary.rows_written) == (5, 5)
    assert summary.facts == {
        "topics": 1,
        "rounds": 1,
        "files": 2,
        "bytes": sum(file.size for file in Lake(lake).files()),
        "lag": 0,
        "lake": str(lake),
    }


def test_one_file_a_partition(spark: SparkSession, dsn: str, lake: Path) -> None:
    """A file has entries of one partition, without a gap and with what the log needs to know of it."""
    fill(dsn, "news", 100, partitions=3)
    archive(spark, dsn, lake)
    ids = partition_ids(dsn, "news")
    assert ranges(lake) == [(ids[n], 0, 100) for n in (1, 2, 3)]
    (row,) = sql(
        dsn,
        "select min(time_of_arrival), max(time_of_arrival) from nuncius.entries where partition_id = $1",
        ids[2],
    )
    (file,) = Lake(lake).files([ids[2]])
    assert (moment(file.first_time), moment(file.last_time)) == (row["min"], row["max"])


def test_what_came_since(spark: SparkSession, dsn: str, lake: Path) -> None:
    """A second run adds what came since the first, in partitions, too, and a third one nothing."""
    fill(dsn, "news", 10, partitions=2)
    archive(spark, dsn, lake)
    fill(dsn, "news", 5)
    fill(dsn, "more", 3)
    assert archive(spark, dsn, lake).rows_written == 13
    version = Lake(lake).version
    assert archive(spark, dsn, lake).rows_written == 0
    assert Lake(lake).version == version
    assert [row["offset"] for row in archived(lake)] == [*range(15), *range(15), *range(3)]


def test_bounded_rounds(spark: SparkSession, dsn: str, lake: Path) -> None:
    """A round takes no more rows than it may, and shares them between the partitions; one sees how far it
    is."""
    fill(dsn, "long", 25)
    fill(dsn, "short", 2)
    shown: list[tuple[str, int | None, int | None]] = []
    settings = {"lake": str(lake), "rowsPerRound": "10"}
    summary = job.JOB.run(Context(spark, dsn, settings, show=lambda *words: shown.append(words)))
    assert summary.facts["rounds"] == 3
    assert shown == [("archiving", 0, 27), ("archiving", 10, 27), ("archiving", 20, 27)]
    long, short = partition_ids(dsn, "long")[1], partition_ids(dsn, "short")[1]
    assert ranges(lake) == [(long, 0, 8), (long, 8, 18), (long, 18, 25), (short, 0, 2)]


def test_a_large_partition_is_cut(
    spark: SparkSession, dsn: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One large partition gives work to every core."""
    monkeypatch.setattr("nuncius.pipeline.lake.stretches.SMALLEST_PIECE", 10)
    fill(dsn, "news", 100)
    archive(spark, dsn, lake)
    assert [(first, end) for _, first, end in ranges(lake)] == [(0, 50), (50, 100)]


def test_a_task(dsn: str, lake: Path) -> None:
    """What a task does can be done by anybody: it needs no Spark."""
    fill(dsn, "news", 10)
    with stores(dsn) as asked:
        (partition,) = look(asked, parse({"store": dsn, "topic": "news"}, streaming=False))
    (file,) = copy(str(lake), LakeStretch(partition, 2, 7))
    assert offsets([file]) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"topic": "a"}, {"a"}),
        ({"topic": "a, ab"}, {"a", "ab"}),
        ({"topicPattern": "a.*"}, {"a", "ab"}),
        ({}, {"a", "ab", "b"}),
    ],
)
def test_choosing_topics(
    spark: SparkSession, dsn: str, lake: Path, settings: dict[str, str], expected: set[str]
) -> None:
    """Topics are chosen by name, as a list, by a pattern, or not at all."""
    for topic in ("a", "ab", "b"):
        fill(dsn, topic, 1)
    archive(spark, dsn, lake, **settings)
    assert {row["topic"] for row in archived(lake)} == expected


def test_no_such_topic(spark: SparkSession, dsn: str, lake: Path) -> None:
    """A topic that is named and not there is an error, and is not made."""
    with pytest.raises(NoSuchTopic):
        archive(spark, dsn, lake, topic="nwes")
    assert value(dsn, "select count(*) from nuncius.topics") == 0


def test_nothing_at_all(spark: SparkSession, dsn: str, lake: Path) -> None:
    """Without topics there is an empty table, and the next run fills it."""
    assert archive(spark, dsn, lake).rows_written == 0
    assert archived(lake) == []
    fill(dsn, "news", 2)
    assert archive(spark, dsn, lake).rows_written == 2


def test_retention_waits_for_the_archive(spark: SparkSession, dsn: str, lake: Path) -> None:
    """What is archived may be dropped; what is not may not, whatever its topic's retention says."""
    fill(dsn, "news", 10)
    archive(spark, dsn, lake)
    fill(dsn, "news", 5)
    (partition_id,) = partition_ids(dsn, "news").values()
    assert confirmed(dsn) == {partition_id: 10}
    value(dsn, "select nuncius.set_retention('news', 'size', null, 1)")
    while value(dsn, "select nuncius.collect()"):
        pass
    assert [row["offset"] for row in stored(dsn)] == list(range(10, 15))
    (subscription,) = sql(dsn, "select * from nuncius.list_subscriptions('news')")
    assert (subscription["subscriber_name"], subscription["lag"]) == ("nuncius:archive", 5)


def test_a_users_own_subscription(spark: SparkSession, dsn: str, lake: Path) -> None:
    """A user's subscription called archive keeps its position and does not hold retention."""
    fill(dsn, "news", 3)
    value(dsn, "select nuncius.subscribe('news', 'archive', 'earliest')")
    archive(spark, dsn, lake)
    found = sql(dsn, "select * from nuncius.list_subscriptions('news')")
    assert [(row["subscriber_name"], row["lag"], row["holds_retention"]) for row in found] == [
        ("archive", 3, False),
        ("nuncius:archive", 0, True),
    ]


def test_dead_letters(spark: SparkSession, dsn: str, lake: Path) -> None:
    """Dead letters are archived when they are named, by a name or a pattern, and not otherwise."""
    fill(dsn, "news", 1)
    fill(dsn, "dead/news", 1)
    archive(spark, dsn, lake)
    assert [row["topic"] for row in archived(lake)] == ["news"]
    assert [row["topic_name"] for row in sql(dsn, "select * from nuncius.list_subscriptions()")] == ["news"]
    assert archive(spark, dsn, lake, topic="dead/news").rows_written == 1
    fill(dsn, "dead/news", 1)
    assert archive(spark, dsn, lake, topicPattern=".*").rows_written == 1


def test_begun_after_retention(spark: SparkSession, dsn: str, lake: Path) -> None:
    """What retention dropped before the first run is not there, and that is no error."""
    fill(dsn, "news", 10)
    drop_before(dsn, "news", 4)
    archive(spark, dsn, lake)
    assert [(first, end) for _, first, end in ranges(lake)] == [(4, 10)]


def test_purged_in_between(spark: SparkSession, dsn: str, lake: Path) -> None:
    """A topic that was purged goes on after a gap."""
    fill(dsn, "news", 10)
    archive(spark, dsn, lake)
    fill(dsn, "news", 5)
    value(dsn, "select nuncius.purge_topic('news')")
    assert archive(spark, dsn, lake).rows_written == 0
    fill(dsn, "news", 3)
    archive(spark, dsn, lake)
    assert [(first, end) for _, first, end in ranges(lake)] == [(0, 10), (15, 18)]


def test_the_same_name_again(spark: SparkSession, dsn: str, lake: Path) -> None:
    """A topic that was deleted and made again is another one: both are in the table, told apart."""
    fill(dsn, "news", 3)
    archive(spark, dsn, lake)
    (old,) = partition_ids(dsn, "news").values()
    value(dsn, "select nuncius.delete_topic('news')")
    fill(dsn, "news", 2)
    archive(spark, dsn, lake)
    (new,) = partition_ids(dsn, "news").values()
    assert ranges(lake) == [(old, 0, 3), (new, 0, 2)]


def test_the_store_knows_its_lake(spark: SparkSession, dsn: str, lake: Path, tmp_path: Path) -> None:
    """Where the lake is has to be said once; by default it is in the data directory."""
    with pytest.raises(InvalidOption, match="where shall the lake be"):
        job.JOB.run(Context(spark, dsn))
    job.JOB.run(Context(spark, dsn, data_dir=tmp_path))
    assert value(dsn, "select location from nuncius.lakes") == str(lake)
    fill(dsn, "news", 2)
    job.JOB.run(Context(spark, dsn))
    assert len(archived(lake)) == 2
    with pytest.raises(InvalidOption, match="the lake of this store is at"):
        archive(spark, dsn, tmp_path / "another")
    assert not (tmp_path / "another").exists()


def test_another_stores_lake(spark: SparkSession, dsn: str, lake: Path) -> None:
    """Two stores do not share a lake: their partitions would be taken for one another's."""
    fill(dsn, "news", 2)
    archive(spark, dsn, lake)
    sql(dsn, "delete from nuncius.lakes")
    with pytest.raises(InvalidOption, match="is another store's"):
        archive(spark, dsn, lake)


def test_an_older_store(spark: SparkSession, dsn: str, lake: Path) -> None:
    """A store that was set back gives offsets again that the lake has; nothing is archived then."""
    fill(dsn, "news", 10)
    archive(spark, dsn, lake)
    sql(dsn, "delete from nuncius.entries where entry_offset >= 6")
    with pytest.raises(DataLoss, match="restored from an older backup"):
        archive(spark, dsn, lake)


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_numbers_are_checked(spark: SparkSession, dsn: str, lake: Path, number: str) -> None:
    """A round of no rows is refused."""
    with pytest.raises(InvalidOption, match="rowsPerRound is a number"):
        archive(spark, dsn, lake, rowsPerRound=number)


def test_follow(spark: SparkSession, dsn: str, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Following, a run goes on when there is enough for a round, in new topics, too, until it is stopped."""
    monkeypatch.setattr(job, "LOOK_SECONDS", 0.01)
    fill(dsn, "news", 3)
    stopping = threading.Event()
    steps = iter([lambda: fill(dsn, "news", 10), lambda: fill(dsn, "more", 10), stopping.set])
    append = Lake.append

    def then(self: Lake, files: list[LakeFile], rounds: int) -> None:
        append(self, files, rounds)
        next(steps)()

    monkeypatch.setattr(Lake, "append", then)
    settings = {"lake": str(lake), "rowsPerRound": "10", "every": "3600"}
    summary = job.JOB.run(Context(spark, dsn, settings, follow=True, stopping=stopping))
    assert summary.facts["rounds"] == 3
    assert [(first, end) for _, first, end in ranges(lake)] == [(0, 3), (3, 13), (0, 10)]


class Looks(threading.Event):
    """The user's patience: so many looks."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number

    def wait(self, timeout: float | None = None) -> bool:
        self.left -= 1
        return self.left < 0


def test_worth_a_round(spark: SparkSession, dsn: str, lake: Path) -> None:
    """A few entries wait for others, but not for ever; nothing is no reason to wake up."""
    place = Lake(lake)
    place.create()
    with stores(dsn) as asked:
        options = parse({"store": dsn, "topicPattern": ".*"}, streaming=False)
        following = Archive(spark, asked, options, place)

        def goes_on(rows: int, every: int) -> bool:
            return job.wait_for_more(Context(spark, dsn, stopping=Looks(3)), following, rows, every)

        assert not goes_on(1, 0)
        fill(dsn, "news", 5)
        assert goes_on(5, 3600)
        assert not goes_on(6, 3600)
        assert goes_on(6, 0)


def test_found_by_name() -> None:
    """The job is among those that come with Nuncius, and says what can be set."""
    assert find("archive") is job.JOB
    assert set(job.SETTINGS) == {"topic", "topicPattern", "lake", "rowsPerRound", "every"}
