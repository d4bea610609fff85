"""No row is stored twice, and none is lost, when tasks and batches are repeated."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from nuncius.pipeline.errors import PipelineError, ReplayDiffers
from nuncius.pipeline.sink.options import WriteTarget
from nuncius.pipeline.sink.publisher import SinkBatch
from nuncius.pipeline.sink.sink import finish, write
from pipeline.filling import create, sql, value
from pipeline.written import bodies, entries, numbers
from pipeline.written import write as append

SEVENTH = SinkBatch("spark/sink", 7, named=True)


def topic(dsn: str, *, rows: int = 100, name: str | None = "news") -> WriteTarget:
    return WriteTarget(dsn, "topic", name, 3, 5, None, rows)


def batch(values: Sequence[int], keyed: bool = False) -> pa.RecordBatch:
    columns = {"value": [str(n).encode() for n in values]}
    if keyed:
        columns["key"] = [f"{n}" for n in values]  # type: ignore[misc]
    return pa.RecordBatch.from_pydict(columns)


def stored(dsn: str) -> list[int]:
    return sorted(map(int, bodies(dsn, "news")))


# Tasks


def test_a_repeated_task(dsn: str) -> None:
    """A task that is repeated writes nothing, in whatever order and batches its rows come now."""
    first = write(topic(dsn), SEVENTH, 0, [batch(range(20), True)])
    again = write(topic(dsn), SEVENTH, 0, [batch(range(19, 9, -1), True), batch(range(10), True)])
    assert (first.rows, first.known) == (20, 0)
    assert (again.rows, again.known) == (0, 20)
    assert stored(dsn) == list(range(20))


def test_a_task_that_died_between_transactions(dsn: str) -> None:
    """A large task goes on after its last committed transaction."""

    def dies() -> Iterator[pa.RecordBatch]:
        yield batch(range(25), True)
        raise ConnectionAbortedError("killed")

    with pytest.raises(ConnectionAbortedError):
        write(topic(dsn, rows=10), SEVENTH, 0, dies())
    assert stored(dsn) == list(range(20))
    again = write(topic(dsn, rows=10), SEVENTH, 0, [batch(range(45), True)])
    assert (again.rows, again.known) == (25, 20)
    assert stored(dsn) == list(range(45))


def test_transactions_end_where_rows_say(dsn: str) -> None:
    """What is one transaction depends on rows, not on the batches they come in; so counts mean the same rows
    when a repeated task gets them in other batches."""
    write(topic(dsn, rows=10), SEVENTH, 0, [batch(range(7)), batch(range(7, 33)), batch([]), batch([33])])
    counts = {int(entry["body"]): entry["count"] - (7 << 32) for entry in entries(dsn, "news")}
    assert counts == {n: n + 1 for n in range(34)}
    rows = sql(
        dsn, "select publisher_count - (7::bigint << 32) as n from nuncius.publisher_counts order by 1"
    )
    assert [row["n"] for row in rows] == [10, 20, 30, 34]


def test_large_values_make_more_transactions(dsn: str) -> None:
    """A transaction ends, too, with the row that makes it large."""
    large = pa.RecordBatch.from_pydict({"value": [b"x" * (7 << 20)] * 7})
    assert write(topic(dsn), SEVENTH, 0, [large]).rows == 7
    rows = sql(
        dsn, "select publisher_count - (7::bigint << 32) as n from nuncius.publisher_counts order by 1"
    )
    assert [row["n"] for row in rows] == [5, 7]


def test_tasks_and_batches_do_not_disturb_each_other(dsn: str) -> None:
    """The same rows in another task, another batch or another sink are other rows."""
    for sink, number, task in (("a", 0, 0), ("a", 0, 1), ("a", 1, 0), ("b", 0, 0)):
        write(topic(dsn), SinkBatch(f"spark/{sink}", number, named=True), task, [batch([1, 2])])
    assert stored(dsn) == [1, 1, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize("now", [range(19), range(21), [1, 2]])
def test_other_rows(dsn: str, now: Sequence[int]) -> None:
    """A repeated task that has fewer or more rows than before is refused, and stores nothing."""
    write(topic(dsn), SEVENTH, 0, [batch(range(20))])
    with pytest.raises(ReplayDiffers, match=rf"has {len(now)} rows for 'news', and had 20"):
        write(topic(dsn), SEVENTH, 0, [batch(now)])
    assert stored(dsn) == list(range(20))


def test_fewer_rows_in_the_last_transaction(dsn: str) -> None:
    """That holds for tasks of several transactions as well."""
    write(topic(dsn, rows=10), SEVENTH, 0, [batch(range(25))])
    with pytest.raises(ReplayDiffers, match="has 22 rows"):
        write(topic(dsn, rows=10), SEVENTH, 0, [batch(range(22))])


def test_an_older_batch(dsn: str) -> None:
    """A sink does not go back: it could not tell what it has of an earlier batch."""
    write(topic(dsn), SEVENTH, 0, [batch([1])])
    with pytest.raises(ReplayDiffers, match="has written batch 7 and cannot tell what of batch 6"):
        write(topic(dsn), SinkBatch("spark/sink", 6, named=True), 0, [batch([2])])
    assert stored(dsn) == [1]


def test_a_finished_batch(dsn: str) -> None:
    """A batch that was complete is not written again, even if it is divided into other tasks now."""
    target = topic(dsn)
    finish(target, [write(target, SEVENTH, 0, [batch(range(20))]), None])
    again = write(topic(dsn, rows=3), SEVENTH, 0, [batch(range(6)), batch(range(6, 9))])
    assert (again.rows, again.known) == (0, 9)
    assert write(target, SEVENTH, 1, [batch(range(9, 20))]).rows == 0
    assert stored(dsn) == list(range(20))
    with pytest.raises(ReplayDiffers, match="has written batch 7"):
        write(target, SinkBatch("spark/sink", 3, named=True), 5, [batch([1])])


def test_an_empty_batch(dsn: str) -> None:
    """A batch without rows is complete, too."""
    target = topic(dsn)
    finish(target, [write(target, SEVENTH, 0, []), write(target, SEVENTH, 1, [batch([])])])
    assert write(target, SEVENTH, 0, [batch([1])]).known == 1


# What happens in the store meanwhile


def test_a_topic_that_grows(dsn: str) -> None:
    """When a topic grows under a task, the rest of its rows goes by the new number of partitions."""
    topic_id = create(dsn, "news")

    def growing() -> Iterator[pa.RecordBatch]:
        yield batch(range(10), True)
        yield batch(range(10, 11), True)  # the first transaction is written when this comes
        sql(dsn, "insert into nuncius.partitions (topic_id, partition) values ($1, 2)", topic_id)
        sql(dsn, "update nuncius.topics set partition_count = 2")
        yield batch(range(11, 40), True)

    assert write(topic(dsn, rows=10), SEVENTH, 0, growing()).rows == 40
    found = entries(dsn, "news")
    assert stored(dsn) == list(range(40))
    assert {entry["partition"] for entry in found if int(entry["body"]) < 10} == {1}
    assert {entry["partition"] for entry in found if int(entry["body"]) >= 10} == {1, 2}


def test_a_partition_that_is_new(dsn: str) -> None:
    """A row may name a partition that has come into being since the task began."""
    topic_id = create(dsn, "news")

    def growing() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": [b"1", b"2"], "partition": pa.array([1, 1], pa.int32())})
        sql(dsn, "insert into nuncius.partitions (topic_id, partition) values ($1, 2)", topic_id)
        sql(dsn, "update nuncius.topics set partition_count = 2")
        yield pa.RecordBatch.from_pydict({"value": [b"3"], "partition": pa.array([2], pa.int32())})

    assert write(topic(dsn, rows=1), SEVENTH, 0, growing()).rows == 3
    assert [entry["partition"] for entry in entries(dsn, "news")] == [1, 1, 2]


def test_a_topic_that_is_deleted(dsn: str) -> None:
    """A topic that is deleted under a task is made again for the rest of its rows."""

    def deleting() -> Iterator[pa.RecordBatch]:
        yield batch(range(20))
        sql(dsn, "select nuncius.delete_topic('news')")
        yield batch(range(20, 30))

    write(topic(dsn, rows=10), SEVENTH, 0, deleting())
    assert stored(dsn) == list(range(10, 30))


def test_a_connection_that_breaks(dsn: str) -> None:
    """A lost connection is replaced, and what was under way is sent again."""

    def breaking() -> Iterator[pa.RecordBatch]:
        yield batch(range(20))
        ended = value(
            dsn,
            "select count(pg_terminate_backend(pid)) from pg_stat_activity"
            " where datname = current_database() and application_name = 'nuncius spark sink'",
        )
        assert ended == 1
        yield batch(range(20, 30))

    assert write(topic(dsn, rows=10), SEVENTH, 0, breaking()).rows == 30
    assert stored(dsn) == list(range(30))


def test_a_store_that_stays_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not come back is an error that names it, without its password."""
    monkeypatch.setattr("nuncius.pipeline.patience.PATIENCE", 0)
    gone = topic("postgresql://nobody:secret@127.0.0.1:1/none")
    with pytest.raises(
        Exception, match=r"the store at postgresql://nobody:\*\*\*@127.0.0.1:1/none has not answered"
    ):
        write(gone, SEVENTH, 0, [batch([1])])


def test_a_row_that_cannot_be_stored(dsn: str) -> None:
    """One bad row is refused together with its neighbours."""
    bad = pa.RecordBatch.from_pydict({"value": [b"1", b"2"], "topic": ["good", "b\0d"]})
    with pytest.raises(PipelineError, match="is no name for a topic"):
        write(topic(dsn, name=None), SEVENTH, 0, [bad])
    assert value(dsn, "select count(*) from nuncius.entries") == 0


def test_many_topics_at_once(dsn: str) -> None:
    """A transaction that needs several calls is still one: a repetition is recognised in every topic."""
    names = [f"topic {n % 150}" for n in range(450)]
    columns = {"topic": names, "value": [str(n).encode() for n in range(450)], "key": names}
    rows = pa.RecordBatch.from_pydict(columns)
    target = topic(dsn, rows=1000, name=None)
    assert write(target, SEVENTH, 0, [rows]).rows == 450
    assert write(target, SEVENTH, 0, [rows]).known == 450
    assert list(map(int, bodies(dsn, "topic 77"))) == [77, 227, 377]
    assert value(dsn, "select count(distinct xmin::text) from nuncius.entries") == 1


# Jobs and streams


def test_a_repeated_job(spark: SparkSession, dsn: str) -> None:
    """A write with a name and a number is stored once, however often it is repeated; the next is another."""
    for tasks in (2, 2, 3):
        append(numbers(spark, 0, 50, tasks), dsn, topic="news", name="daily", batch=20260101)
    assert stored(dsn) == list(range(50))
    append(numbers(spark, 50, 60), dsn, topic="news", name="daily", batch=20260102)
    assert stored(dsn) == list(range(60))
    with pytest.raises(PySparkException, match="has written batch 20260102"):
        append(numbers(spark, 0, 50), dsn, topic="news", name="daily", batch=20260101)


def test_a_write_without_a_name(spark: SparkSession, dsn: str) -> None:
    """A write without a name is stored as often as it is called, and its publishers are soon forgotten."""
    for _ in range(2):
        append(numbers(spark, 0, 5), dsn, topic="news")
    assert stored(dsn) == sorted([*range(5), *range(5)])
    assert value(dsn, "select count(*) from nuncius.publishers where lasting") == 0


def texts(spark: SparkSession, directory: Path) -> DataFrame:
    return spark.readStream.option("maxFilesPerTrigger", 2).text(str(directory))


def run(df: DataFrame, dsn: str, checkpoint: Path, **options: str) -> None:
    query = (
        df.writeStream.format("nuncius")
        .options(store=dsn, topic="news", **options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Twelve numbers in four files: two batches of a stream, two tasks each."""
    directory = tmp_path / "in"
    directory.mkdir()
    for n in range(4):
        # Files of this size are never read together by one task.
        (directory / f"{n}.txt").write_text("".join(f"{n * 3 + i}\n" for i in range(3)))
    return directory


def test_a_replayed_batch(spark: SparkSession, dsn: str, files: Path, tmp_path: Path) -> None:
    """A stream that dies before it has noted its last batch repeats it when it starts again: nothing comes
    twice. A new checkpoint is a new stream, which writes everything."""
    checkpoint = tmp_path / "checkpoint"
    run(texts(spark, files), dsn, checkpoint, name="copy")
    assert stored(dsn) == list(range(12))
    _forget_last_commit(checkpoint)
    run(texts(spark, files), dsn, checkpoint, name="copy")
    assert stored(dsn) == list(range(12))
    run(texts(spark, files), dsn, tmp_path / "another", name="copy")
    assert stored(dsn) == sorted([*range(12), *range(12)])


def test_a_batch_that_was_half_written(spark: SparkSession, dsn: str, files: Path, tmp_path: Path) -> None:
    """Of a batch that died halfway a replay writes what is missing, and only that."""
    checkpoint = tmp_path / "checkpoint"
    df = texts(spark, files).repartition(2, sf.col("value"))
    run(df, dsn, checkpoint)
    lost = value(
        dsn,
        "select publisher_name from nuncius.publishers p join nuncius.publisher_counts c using (publisher_id)"
        " where c.kind = 1 and c.publisher_count > (1::bigint << 32) order by 1 limit 1",
    )
    _unwrite(dsn, lost)
    missing = set(range(12)) - set(stored(dsn))
    assert 0 < len(missing) < 6
    _forget_last_commit(checkpoint)
    run(texts(spark, files).repartition(2, sf.col("value")), dsn, checkpoint)
    assert stored(dsn) == list(range(12))


def _forget_last_commit(checkpoint: Path) -> None:
    """Leaves the checkpoint as if the driver had died before the last batch was noted as done."""
    last = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()),
        key=lambda p: int(p.name),
    )
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def _unwrite(dsn: str, publisher: str) -> None:
    """Leaves the store as if this task of batch 1 had not been written and the batch was not complete."""
    sql(
        dsn,
        "delete from nuncius.entries where publisher_count > (1::bigint << 32)"
        " and publisher_id = (select publisher_id from nuncius.publishers where publisher_name = $1)",
        publisher,
    )
    sql(
        dsn,
        "delete from nuncius.publisher_counts where publisher_count > (1::bigint << 32) and kind = 1"
        " and publisher_id = (select publisher_id from nuncius.publishers where publisher_name = $1)",
        publisher,
    )
    sql(dsn, "delete from nuncius.publisher_counts where kind = 3")


def test_inside_foreach_batch(spark: SparkSession, dsn: str, files: Path, tmp_path: Path) -> None:
    """A named write inside foreachBatch takes the number of the query's batch, and survives its replay."""

    def each(rows: DataFrame, _: int) -> None:
        append(rows, dsn, topic="news", name="each")

    def go() -> None:
        writer = texts(spark, files).writeStream.foreachBatch(each)
        place = str(tmp_path / "checkpoint")
        writer.option("checkpointLocation", place).trigger(availableNow=True).start().awaitTermination()

    go()
    _forget_last_commit(tmp_path / "checkpoint")
    go()
    assert stored(dsn) == list(range(12))
    names = [row["publisher_name"] for row in sql(dsn, "select publisher_name from nuncius.publishers")]
    assert all(name.startswith("spark/each/") for name in names)


def test_a_stream_numbers_its_batches(spark: SparkSession, dsn: str, files: Path, tmp_path: Path) -> None:
    """A stream is not told which batch it writes, and cannot be updated or replaced as a whole."""
    with pytest.raises(PySparkException, match="leave option 'batch' out"):
        run(texts(spark, files), dsn, tmp_path / "a", batch="1")
    counts = texts(spark, files).groupBy("value").count().selectExpr("value")
    writer = counts.writeStream.format("nuncius").options(store=dsn, topic="news").outputMode("complete")
    with pytest.raises(PySparkException, match="only grow"):
        writer.option("checkpointLocation", str(tmp_path / "b")).start().awaitTermination()
