"""How executors read: short transactions, bounded memory, no gaps, and connections that break."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import adbc_driver_manager as adbc
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from nuncius.pipeline import link, place
from nuncius.pipeline.catalogue import TopicPartition, look, stores
from nuncius.pipeline.errors import DataLoss
from nuncius.pipeline.source import chunks
from nuncius.pipeline.source.options import parse
from nuncius.pipeline.source.schema import EXTRA, SCHEMA
from pipeline.filling import create, drop_before, fill, publish, sql, value
from pipeline.reading import batch_reader, everything, table

APPLICATION = "nuncius source"
ALL = ["key", "value", "headers", "publisher", "time", "publisher_count"]


@pytest.fixture(autouse=True)
def _no_connections_left(dsn: str) -> Iterator[None]:
    yield
    link.unlink(dsn)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of ten rows."""
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 10)


def partition(dsn: str, topic: str = "news") -> TopicPartition:
    with stores(dsn) as asked:
        return look(asked, parse({"store": dsn, "topic": topic}, streaming=False))[0]


def read(
    dsn: str, start: int, end: int, names: list[str] | None = None, *, fail: bool = True
) -> Iterator[tuple[chunks.ReadChunk, pa.RecordBatch]]:
    names = ["value"] if names is None else names
    return chunks.read(partition(dsn), start, end, names, fail_on_data_loss=fail)


def numbers(found: Iterator[tuple[chunks.ReadChunk, pa.RecordBatch]]) -> list[int]:
    return [number for _, batch in found for number in batch.column(0).to_pylist()]


def states(dsn: str) -> list[str]:
    """What the connections of executors are doing."""
    rows = sql(
        dsn,
        "select state from pg_stat_activity where application_name = $1 and datname = current_database()",
        APPLICATION,
    )
    return [row["state"] for row in rows]


def terminate(dsn: str) -> int:
    """Breaks the connections of executors; answers how many there were."""
    ended: int = value(
        dsn,
        "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity"
        " where application_name = $1 and datname = current_database()",
        APPLICATION,
    )
    return ended


@pytest.mark.usefixtures("small_chunks")
def test_no_transaction_is_open_while_rows_are_consumed(dsn: str) -> None:
    """A chunk's transaction is over before its first row is seen, and the next begins when it is needed."""
    fill(dsn, "news", 35)
    found = read(dsn, 0, 35)
    seen = []
    for _, batch in found:
        assert states(dsn) == ["idle"]
        seen += batch.column(0).to_pylist()
    assert seen == list(range(35))


def wait_until_idle(dsn: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A consumer that takes its time: it goes on when the readers' transactions are over."""
    for number, batch in enumerate(batches):
        if number == 0:
            with place.connect(dsn) as db:
                db.execute(
                    f"""do $$ begin
                        for i in 1 .. 3000 loop
                            if not exists (select from pg_stat_activity where datname = current_database()
                                and application_name = '{APPLICATION}' and state <> 'idle') then
                                return;
                            end if;
                            perform pg_stat_clear_snapshot(), pg_sleep(0.01);
                        end loop;
                        raise 'the transaction of a reader does not end';
                    end $$"""
                )
        yield batch


def test_a_slow_consumer_holds_no_transaction_open(spark: SparkSession, dsn: str) -> None:
    """Rows that Spark does not take yet wait in the reader, not in PostgreSQL."""
    fill(dsn, "news", 150_000)
    entries = table(spark, dsn, topic="news")
    consumed = entries.mapInArrow(lambda batches: wait_until_idle(dsn, batches), entries.schema)
    assert consumed.schema == SCHEMA
    assert consumed.agg({"offset": "count"}).first() == (150_000,)


def test_large_entries_are_read_in_bounded_chunks(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk ends when it is full, and the next ones are asked for no more than fits."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 3 << 20)
    monkeypatch.setattr(link, "BATCH_BYTES", 1 << 20)
    create(dsn, "news")
    body = bytes(1 << 20)
    for _ in range(4):
        publish(dsn, "news", [body] * 6)
    publish(dsn, "news", ["small"] * 100)
    sizes: dict[int, tuple[int, bool]] = {}
    seen = []
    for chunk, batch in read(dsn, 0, 124):
        sizes[
            batch.column(0)[0].as_py() - sum(b.num_rows for b in chunk.batches[: chunk.batches.index(batch)])
        ] = (
            chunk.bytes,
            chunk.cut,
        )
        seen += batch.column(0).to_pylist()
    assert seen == list(range(124))
    assert max(size for size, _ in sizes.values()) < 5 << 20
    assert [cut for _, cut in sizes.values()].count(True) >= 2
    assert len(sizes) < 24


def test_bodies_of_megabytes_pass_through_spark(spark: SparkSession, dsn: str) -> None:
    """More of them than a chunk may have."""
    create(dsn, "news")
    for number in range(6):
        publish(dsn, "news", [bytes([number]) * (8 << 20)])
    rows = table(spark, dsn, "offset bigint, value binary", topic="news").selectExpr(
        "offset", "length(value) as size", "hex(substring(value, 1, 1)) as first"
    )
    assert sorted(map(tuple, rows.collect())) == [(n, 8 << 20, f"0{n}") for n in range(6)]


def test_a_chunk_that_takes_long_is_cut_short(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of it is the next chunk."""
    monkeypatch.setattr(chunks, "CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(link, "BATCH_BYTES", 10_000)
    fill(dsn, "news", 2000)
    found = list(read(dsn, 0, 2000))
    assert numbers(iter(found)) == list(range(2000))
    assert all(chunk.cut for chunk, _ in found[:-1])


@pytest.mark.usefixtures("small_chunks")
def test_a_connection_that_breaks_between_chunks_is_made_again(dsn: str) -> None:
    """The rest of the range is read, and no row twice."""
    fill(dsn, "news", 95)
    found = read(dsn, 0, 95)
    seen = numbers(iter([next(found)]))
    assert terminate(dsn) == 1
    assert seen + numbers(found) == list(range(95))


def break_connections(dsn: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(batches):
        if number == 0:
            terminate(dsn)
        yield batch


def test_spark_does_not_notice_a_broken_connection(spark: SparkSession, dsn: str) -> None:
    """A task whose connection is gone when it needs its next chunk has all its rows in the end, once."""
    fill(dsn, "news", 150_000)
    entries = table(spark, dsn, "offset bigint, value binary", topic="news")
    consumed = entries.mapInArrow(lambda batches: break_connections(dsn, batches), entries.schema)
    counted = consumed.selectExpr("count(*)", "count(distinct offset)", "max(offset)")
    assert counted.first() == (150_000, 150_000, 149_999)


def test_a_connection_that_breaks_during_a_statement_is_made_again(dsn: str) -> None:
    """The chunk is fetched from its beginning."""
    fill(dsn, "news", 10)
    there = partition(dsn)
    waiting = (
        "select count(*) from pg_stat_activity where application_name = $1 and datname = current_database()"
        " and wait_event_type = 'Lock'"
    )
    with place.connect(dsn) as locker, place.connect(dsn) as observer, ThreadPoolExecutor(1) as thread:
        locker.execute("begin")
        locker.execute("lock table nuncius.entries in access exclusive mode")
        seen = thread.submit(numbers, chunks.read(there, 0, 10, ["value"], fail_on_data_loss=True))
        while not observer.value(waiting, APPLICATION):
            pass
        assert terminate(dsn) == 1
        locker.execute("commit")
        assert seen.result(30) == list(range(10))
        thread.submit(link.unlink, dsn).result()


def test_a_store_that_stays_away_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some patience, with what PostgreSQL's library says."""
    monkeypatch.setattr("nuncius.pipeline.patience.PATIENCE", 0.0)
    away = TopicPartition("news", 1, 1, 1, "postgresql://nobody@127.0.0.1:1/none", 0, 10)
    with pytest.raises(adbc.OperationalError, match="Connection refused"):
        list(chunks.read(away, 0, 10, ["value"], fail_on_data_loss=True))


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    ("gone", "complaint"),
    [
        (range(5), "5 of the entries from offset 0 to 9 are gone"),
        (range(13, 15), "2 of the entries from offset 10 to 19 are gone"),
        (range(20, 30), "10 of the entries from offset 20 to 29 are gone"),
        (range(28, 35), "2 of the entries from offset 28 to 29 are gone"),
        (range(34, 35), "1 of the entries from offset 34 to 34 are gone"),
    ],
)
def test_entries_that_are_gone_are_noticed(
    dsn: str, gone: range, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever in a range or a chunk they were: an error, or a warning and all the others."""
    fill(dsn, "news", 35)
    sql(dsn, "delete from nuncius.entries where entry_offset = any ($1)", list(gone))
    with pytest.raises(DataLoss, match=complaint):
        list(read(dsn, 0, 35, ALL))
    assert numbers(read(dsn, 0, 35, ALL, fail=False)) == [n for n in range(35) if n not in gone]
    assert complaint in caplog.text


def test_entries_that_go_between_planning_and_reading_are_noticed(dsn: str) -> None:
    """A task never has fewer rows than were planned without saying so."""
    fill(dsn, "news", 20)
    reader = batch_reader(dsn, topic="news")
    (task,) = reader.partitions()
    drop_before(dsn, "news", 8)
    with pytest.raises(DataLoss, match="partition 1 of topic 'news', 8 of the entries from offset 0 to 19"):
        list(reader.read(task))


@pytest.mark.usefixtures("small_chunks")
def test_columns_that_turn_up_in_the_middle_are_not_missed(dsn: str) -> None:
    """Keys, headers and publishers are there from the entry that has them on, and null before."""
    create(dsn, "news")
    plain, keyed = [str(n) for n in range(30)], [f"k{n}" for n in range(10)]
    publish(dsn, "news", plain)
    publish(dsn, "news", plain[:10], keys=keyed)
    publish(dsn, "news", plain[:5], headers=[{"a": "b"}] * 5)
    publish(dsn, "news", plain[:5], publisher="alice", count=4)
    publish(dsn, "news", plain)
    found = everything(batch_reader(dsn, StructType([*SCHEMA, *EXTRA]), topic="news"))
    assert found.column("offset").to_pylist() == list(range(80))
    assert found.column("key").to_pylist() == [None] * 30 + keyed + [None] * 40
    assert found.column("headers").to_pylist() == [None] * 40 + [[("a", "b")]] * 5 + [None] * 35
    assert found.column("publisher").to_pylist() == [None] * 45 + ["alice"] * 5 + [None] * 30
    assert found.column("publisher_count").to_pylist() == [None] * 45 + [4, 5, 6, 7, 8] + [None] * 30


@pytest.mark.usefixtures("small_chunks")
def test_columns_without_content_are_not_asked_for(dsn: str) -> None:
    """After a first chunk without keys, headers and publishers these cost nothing."""
    fill(dsn, "news", 30)
    asked = [chunk.names for chunk, _ in read(dsn, 0, 30, ALL)]
    assert asked == [ALL, ["key", "value", "time"], ["key", "value", "time"]]


def test_a_worker_keeps_one_connection_a_store_and_not_too_many(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest is closed when there are more stores than it keeps connections to."""
    assert link.linked(dsn) is link.linked(dsn)
    assert len(states(dsn)) == 1
    monkeypatch.setattr(link, "KEPT", 1)
    link.linked(dsn + "&connect_timeout=9")
    assert len(states(dsn)) == 1
    link.unlink(dsn + "&connect_timeout=9")
    assert states(dsn) == []


def test_very_many_publishers(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that has met too many publishers forgets them, and asks again for those that it meets."""
    monkeypatch.setattr(link, "REMEMBERED", 3)
    ids = [
        value(dsn, "select publisher_id from nuncius.ensure_publishers(array[$1])", f"p{n}") for n in range(5)
    ]
    linked = link.linked(dsn)
    for n in range(4):
        some = pa.array([*ids[n : n + 2], None], pa.int32())
        assert linked.names(some).to_pylist() == [f"p{n}", f"p{n + 1}", None]
        assert len(linked._ids) <= 4  # noqa: SLF001
