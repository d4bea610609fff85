"""Batch writes to queues: priorities, receivers, exactly once."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from nuncius.pipeline import place
from nuncius.pipeline.errors import PipelineError, ReplayDiffers
from nuncius.pipeline.sink.options import WriteTarget
from nuncius.pipeline.sink.publisher import SinkBatch
from nuncius.pipeline.sink.sink import write
from pipeline.cluster import until
from pipeline.filling import sql, value
from pipeline.written import messages, numbers
from pipeline.written import write as append

FIRST = SinkBatch("spark/sink", 1, named=True)


def make(dsn: str, *queues: str) -> None:
    sql(dsn, "insert into nuncius.queues (queue_name) select unnest($1::text[])", list(queues))


def client(dsn: str, name: str) -> int:
    made: int = value(
        dsn,
        "insert into nuncius.clients (client_name, client_mode) values ($1, 1) returning client_id",
        name,
    )
    return made


def target(dsn: str, **changes: Any) -> WriteTarget:
    fields = {"name": "work", "partitions": 1, "priority": 5, "receiver": None, "rows": 100}
    return WriteTarget(dsn, "queue", **{**fields, **changes})


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_all_columns(spark: SparkSession, dsn: str) -> None:
    """Priority, receiver and headers arrive as they were given; null means the option, or nothing."""
    make(dsn, "work", "other")
    anna, bert = client(dsn, "anna"), client(dsn, "bert")
    rows = [
        ("one", "work", 1, "anna", {"a": "b"}),
        ("two", "work", None, None, None),
        ("three", "other", 10, None, None),
    ]
    schema = "value string, queue string, priority int, receiver string, headers map<string,string>"
    append(spark.createDataFrame(rows, schema).coalesce(1), dsn, priority=3, receiver="bert")
    one, two = messages(dsn, "work")
    assert (one["body"], one["priority"], one["receiver"]) == (b"one", 1, anna)
    assert json.loads(one["headers"]) == {"a": "b"}
    assert two == {"body": b"two", "priority": 3, "receiver": bert, "headers": None}
    assert [m["priority"] for m in messages(dsn, "other")] == [10]


def test_defaults(spark: SparkSession, dsn: str) -> None:
    """Values alone are messages of middle priority for anyone, in the order of the rows."""
    make(dsn, "work")
    append(numbers(spark, 0, 300, 1), dsn, queue="work", rowsPerTransaction=70)
    found = messages(dsn, "work")
    assert [int(message["body"]) for message in found] == list(range(300))
    assert {(message["priority"], message["receiver"]) for message in found} == {(5, 0)}


def test_a_repeated_job(spark: SparkSession, dsn: str) -> None:
    """A named and numbered write into a queue is stored once, even after its messages were taken."""
    make(dsn, "work")
    append(numbers(spark, 0, 20), dsn, queue="work", name="daily", batch=1)
    sql(dsn, "delete from nuncius.messages where priority = 5 and message in ('3', '4')")
    append(numbers(spark, 0, 20), dsn, queue="work", name="daily", batch=1)
    assert len(messages(dsn, "work")) == 18


def test_a_repeated_task(dsn: str) -> None:
    """A repeated task puts nothing; one that is not the same is refused."""
    make(dsn, "work")
    assert write(target(dsn), FIRST, 0, [batch(value=["a", "b"])]).rows == 2
    assert write(target(dsn), FIRST, 0, [batch(value=["b", "a"])]).known == 2
    with pytest.raises(ReplayDiffers, match="has 3 rows for 'work', and had 2"):
        write(target(dsn), FIRST, 0, [batch(value=["a", "b", "c"])])
    assert len(messages(dsn, "work")) == 2


def test_many_queues_at_once(dsn: str) -> None:
    """A transaction that needs several calls is still one."""
    names = [f"queue {n % 150}" for n in range(300)]
    make(dsn, *sorted(set(names)))
    rows = batch(queue=names, value=[str(n) for n in range(300)])
    assert write(target(dsn, name=None, rows=1000), FIRST, 0, [rows]).rows == 300
    assert write(target(dsn, name=None, rows=1000), FIRST, 0, [rows]).known == 300
    assert [message["body"] for message in messages(dsn, "queue 77")] == [b"77", b"227"]
    assert value(dsn, "select count(distinct xmin::text) from nuncius.messages") == 1


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("'a' as value", {"queue": "none"}, "no queue 'none': make it with: nuncius queue create none"),
        ("'a' as value, 'x' as key", {"queue": "work"}, "a queue has no column 'key': select some of queue"),
        ("'a' as value, 11 as priority", {"queue": "work"}, "priority is not between 1 and 10"),
        ("'a' as value", {"queue": "work", "priority": "0"}, "'priority' is a number from 1 to 10, not '0'"),
        ("'a' as value, 'nobody' as receiver", {"queue": "work"}, "there is no client 'nobody'"),
        ("'a' as value, 'no\\0body' as receiver", {"queue": "work"}, "the store refused a row"),
        ("'a' as value", {"queue": "far"}, "queue 'far' lives in store 2"),
    ],
)
def test_refused(spark: SparkSession, dsn: str, columns: str, options: dict[str, str], words: str) -> None:
    """What cannot be put is refused with a sentence, and nothing of its transaction is stored."""
    make(dsn, "work")
    sql(dsn, "insert into nuncius.queues (queue_name, store_id) values ('far', 2)")
    with pytest.raises(PySparkException) as refused:
        append(spark.sql(f"select {columns}"), dsn, **options)
    assert words in str(refused.value)
    assert value(dsn, "select count(*) from nuncius.messages") == 0


def test_a_queue_that_is_deleted(dsn: str) -> None:
    """A queue that disappears under a task fails it; a queue is never made by writing."""
    make(dsn, "work")

    def deleting() -> Iterator[pa.RecordBatch]:
        yield batch(value=["a"] * 20)
        sql(dsn, "delete from nuncius.queues")
        yield batch(value=["b"])

    with pytest.raises(PipelineError, match="there is no queue 'work'"):
        write(target(dsn, rows=10), FIRST, 0, deleting())
    assert len(messages(dsn, "work")) == 0


def test_a_queue_that_is_deleted_under_a_writer(dsn: str) -> None:
    """A writer that stood in line for a queue while that was deleted is told so, and stores nothing."""
    make(dsn, "work")
    waiting = (
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
        " and datname = current_database() and application_name = 'nuncius spark sink'"
    )
    with place.connect(dsn) as db, ThreadPoolExecutor(1) as thread:
        db.execute("begin")
        db.value("select pg_advisory_xact_lock(78002, queue_id) from nuncius.queues")
        writing = thread.submit(write, target(dsn), FIRST, 0, [batch(value=["a"])])
        until(lambda: value(dsn, waiting), "the writer's waiting")
        db.execute("delete from nuncius.queues")
        db.execute("commit")
        with pytest.raises(PipelineError, match="queue 'work' was deleted while it was written to"):
            writing.result()
    assert value(dsn, "select count(*) from nuncius.messages") == 0
