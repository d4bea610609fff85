"""Topics whose partitions are in several stores."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from fix_store import execute, let_in, other_database
from nuncius.pipeline import link
from nuncius.pipeline.catalogue import stores
from nuncius.pipeline.errors import DataLoss, PipelineError
from pipeline.filling import create, partition_ids, publish, sql, value
from pipeline.reading import batch_reader, catch_up, everything, offsets, stream_reader, table


@pytest.fixture
def second(away: str) -> str:
    """The address of another store."""
    return away


@pytest.fixture
def topic(dsn: str, second: str) -> Iterator[str]:
    """A topic with two partitions, the second of which is in the other store."""
    create(dsn, "news", 2)
    move(dsn, second)
    yield "news"
    link.unlink(dsn)
    link.unlink(second)


def move(dsn: str, second: str) -> None:
    store = value(
        dsn, "insert into nuncius.stores (store_name, dsn) values ('second', $1) returning store_id", second
    )
    sql(dsn, "update nuncius.partitions set store_id = $1 where partition = 2", store)


def put(dsn: str, second: str, bodies: list[str], publisher: str = "bob") -> None:
    """Adds entries to the partition in the other store, by a publisher that only that store knows."""
    partition_id = partition_ids(dsn, "news")[2]
    sql(
        second,
        "insert into nuncius.entries (partition_id, entry_offset, body, publisher_id)"
        " select $1, coalesce((select max(entry_offset) + 1 from nuncius.entries where partition_id = $1), 0)"
        " + n - 1, convert_to(b, 'UTF8'), p.publisher_id"
        " from unnest($2::text[]) with ordinality b(b, n), nuncius.ensure_publishers(array[$3]) p",
        partition_id,
        bodies,
        publisher,
    )


def test_stores_are_read_as_one(spark: SparkSession, dsn: str, second: str, topic: str) -> None:
    """Each partition where it is, with the publishers of that store."""
    publish(dsn, topic, ["a", "b"], publisher="alice")
    put(dsn, second, ["c", "d", "e"])
    found = table(spark, dsn, topic=topic)
    assert offsets(found) == [("news", 1, 0), ("news", 1, 1), *(("news", 2, n) for n in range(3))]
    assert sorted((row.publisher, bytes(row.value)) for row in found.collect()) == [
        ("alice", b"a"),
        ("alice", b"b"),
        ("bob", b"c"),
        ("bob", b"d"),
        ("bob", b"e"),
    ]


def test_streams_ask_every_store_for_its_end(
    spark: SparkSession, dsn: str, second: str, topic: str, tmp_path: Path
) -> None:
    """What comes to either is read."""
    put(dsn, second, ["a"])
    assert catch_up(spark, dsn, tmp_path, topic=topic).rows == [("news", 2, 0)]
    publish(dsn, topic, ["b"])
    put(dsn, second, ["c", "d"])
    assert catch_up(spark, dsn, tmp_path, topic=topic).rows == [
        ("news", 1, 0),
        ("news", 2, 1),
        ("news", 2, 2),
    ]


def test_times_are_looked_up_where_the_entries_are(dsn: str, second: str, topic: str) -> None:
    """The first entry that is not before a time, in the other store, too."""
    put(dsn, second, ["a", "b", "c"])
    sql(
        second,
        "update nuncius.entries set time_of_arrival = timestamptz '2026-01-01Z'"
        " + entry_offset * interval '1 second'",
    )
    found = everything(batch_reader(dsn, topic=topic, startingTimestamp="2026-01-01T00:00:01"))
    assert found.column("value").to_pylist() == [b"b", b"c"]


def test_retention_is_what_the_catalogue_says(dsn: str, second: str, topic: str) -> None:
    """An entry below it is gone, in whichever store it was; an empty partition ends where it begins."""
    put(dsn, second, ["a", "b", "c"])
    sql(dsn, "update nuncius.partitions set first_offset = 2 where partition = 2")
    assert everything(batch_reader(dsn, topic=topic)).column("offset").to_pylist() == [2]
    with pytest.raises(
        DataLoss, match="partition 2 of topic 'news', the entries from offset 0 to 1 are gone"
    ):
        batch_reader(dsn, topic=topic, startingOffsets='{"news": {"2": 0}}').partitions()
    sql(dsn, "update nuncius.partitions set first_offset = 5 where partition = 2")
    with stream_reader(dsn, topic=topic) as reader:
        assert reader.initialOffset()["news"]["2"] == 5


def test_a_broken_connection_to_a_store_is_made_again(dsn: str, second: str, topic: str) -> None:
    """A stream asks on where it was."""
    with stream_reader(dsn, topic=topic) as reader:
        start = reader.initialOffset()
        for store in (dsn, second):
            ended = value(
                store,
                "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()",
            )
            assert ended == 1
        put(dsn, second, ["a"])
        assert reader.latestOffset(start, ReadAllAvailable())["news"]["2"] == 1


def test_a_store_without_an_address_is_said(dsn: str, topic: str) -> None:
    """The catalogue is wrong, and the message says where."""
    sql(dsn, "update nuncius.stores set dsn = null")
    with pytest.raises(PipelineError, match="partition 2 of topic 'news' is in store 2, for which table"):
        batch_reader(dsn, topic=topic).partitions()


def test_a_store_that_is_not_there_is_said(spark: SparkSession, dsn: str, topic: str) -> None:
    """Half of a topic is not read as if it were the whole."""
    sql(dsn, "update nuncius.stores set dsn = 'postgresql://nobody@127.0.0.1:1/none' where store_id = 2")
    with pytest.raises(AnalysisException, match="cannot connect to the store at postgresql://nobody"):
        table(spark, dsn, topic=topic).collect()


def test_a_store_whose_connection_broke_is_waited_for(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a broken connection, planning tries again until the store accepts connections."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:  # the first attempt failed on the connection, the second was refused
            let_in(dsn, may=True)

    monkeypatch.setattr("nuncius.pipeline.patience.sleep", pause)
    with stores(dsn) as opened:
        backend = opened.rows(dsn, "select pg_backend_pid()")[0][0]
        let_in(dsn, may=False)
        execute(other_database(dsn, "postgres"), f"select pg_terminate_backend({backend})")
        assert opened.rows(dsn, "select 1")[0][0] == 1
    assert len(pauses) == 2
