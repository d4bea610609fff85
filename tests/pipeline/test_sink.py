"""Batch writes to topics: which columns mean what, and what is refused."""

import asyncio
import json
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from nuncius.store.calls.publishing import partition_of
from nuncius.store.driver import Connection
from pipeline.filling import create, sql, value
from pipeline.written import bodies, entries, numbers, write


def test_all_columns(spark: SparkSession, dsn: str) -> None:
    """Key, headers and a partition of one's own arrive as they were given, null meaning none."""
    create(dsn, "news", 3)
    rows = [
        (b"one", "a", {"x": "1", "ü": '"'}, None),
        (b"\x00\xff", None, None, 3),
        (b"", None, {}, 2),
    ]
    df = spark.createDataFrame(rows, "value binary, key string, headers map<string,string>, partition int")
    write(df.coalesce(1), dsn, topic="news")
    found = entries(dsn, "news")
    by_body = {entry["body"]: entry for entry in found}
    assert by_body.keys() == {b"one", b"\x00\xff", b""}
    assert by_body[b"one"]["partition"] == partition_of("a", 3)
    assert by_body[b"one"]["key"] == "a"
    assert json.loads(by_body[b"one"]["headers"]) == {"x": "1", "ü": '"'}
    assert (by_body[b"\x00\xff"]["partition"], by_body[b"\x00\xff"]["headers"]) == (3, None)
    assert (by_body[b""]["partition"], by_body[b""]["headers"]) == (2, None)


def test_keys_decide(spark: SparkSession, dsn: str) -> None:
    """Entries with one key lie in the partition that nodes would choose, in the order of the rows."""
    keys = [f"key {n % 7}" for n in range(200)]
    df = spark.createDataFrame([(f"{n}", key) for n, key in enumerate(keys)], "value string, key string")
    write(df.coalesce(1), dsn, topic="news", partitions=4)
    found = entries(dsn, "news")
    assert len(found) == 200
    assert all(entry["partition"] == partition_of(entry["key"], 4) for entry in found)
    for key in set(keys):
        mine = [int(entry["body"]) for entry in found if entry["key"] == key]
        assert mine == [n for n in range(200) if keys[n] == key]


def test_offsets_are_dense(spark: SparkSession, dsn: str) -> None:
    """Whatever tasks write at once, each partition has its offsets from 0 without a gap."""
    df = numbers(spark, 0, 1000, 4).withColumn("key", sf.col("value"))
    write(df, dsn, topic="news", partitions=3)
    rows = sql(
        dsn,
        "select count(*) as n, min(entry_offset) as low, max(entry_offset) as high"
        " from nuncius.entries group by partition_id",
    )
    assert len(rows) == 3
    assert sum(row["n"] for row in rows) == 1000
    assert all((row["low"], row["high"]) == (0, row["n"] - 1) for row in rows)


def test_tasks_spread(spark: SparkSession, dsn: str) -> None:
    """Without keys the rows of a transaction stay together, and transactions take turns at the partitions."""
    write(numbers(spark, 0, 60, 2), dsn, topic="news", partitions=3, rowsPerTransaction=10)
    places: dict[int, set[int]] = {}
    for entry in entries(dsn, "news"):
        places.setdefault(int(entry["body"]) // 10, set()).add(entry["partition"])
    # Task 0 has the first 30 rows, task 1 the others.
    assert places == {0: {1}, 1: {2}, 2: {3}, 3: {2}, 4: {3}, 5: {1}}


def test_topics_by_column(spark: SparkSession, dsn: str) -> None:
    """A column can name the topic of each row; topics that are missing are made."""
    df = spark.range(0, 300, 1, 2).selectExpr(
        "concat('topic ', id % 100) as topic", "cast(id as string) as value"
    )
    write(df, dsn, partitions=2)
    for n in (0, 57, 99):
        assert sorted(map(int, bodies(dsn, f"topic {n}"))) == [n, n + 100, n + 200]
    assert value(dsn, "select count(*) from nuncius.topics where partition_count = 2") == 100


def test_existing_topic_keeps_its_partitions(spark: SparkSession, dsn: str) -> None:
    """Option partitions is for topics that are made."""
    create(dsn, "news", 2)
    write(numbers(spark, 0, 10), dsn, topic="news", partitions=9)
    assert value(dsn, "select partition_count from nuncius.topics where topic_name = 'news'") == 2
    assert sorted(map(int, bodies(dsn, "news"))) == list(range(10))


def test_nothing(spark: SparkSession, dsn: str) -> None:
    """A write without rows makes no topic and no publisher."""
    write(numbers(spark, 0, 0), dsn, topic="news")
    assert value(dsn, "select count(*) from nuncius.topics") == 0
    assert value(dsn, "select count(*) from nuncius.publishers") == 0


async def test_listening_nodes_are_told(spark: SparkSession, dsn: str, connection: Connection) -> None:
    """A write announces its topics, so that nobody who waits for entries waits longer."""
    topic_id = create(dsn, "news")
    said: asyncio.Queue[str] = asyncio.Queue()
    await connection.add_listener("nuncius", lambda *words: said.put_nowait(str(words[3])))
    write(numbers(spark, 0, 1), dsn, topic="news")
    async with asyncio.timeout(60):
        assert await said.get() == f"t{topic_id}"


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("1 as value", {"topic": "t"}, "column 'value' cannot be int: a topic takes topic (string), value"),
        ("'a' as value", {"topic": "t", "name": "a"}, "Give option 'batch', a number that goes up"),
        ("cast(null as string) as value", {"topic": "t"}, "column 'value' must not be null"),
        ("'a' as value, 2 as partition", {"topic": "t"}, "topic 't' has 1 partitions, and none is 2"),
    ],
)
def test_refused(spark: SparkSession, dsn: str, columns: str, options: dict[str, str], words: str) -> None:
    """What cannot be written is refused with a sentence that says what can, and leaves nothing behind."""
    with pytest.raises(PySparkException) as refused:
        write(spark.sql(f"select {columns}"), dsn, **options)
    assert words in str(refused.value)
    assert value(dsn, "select count(*) from nuncius.entries") == 0


def test_append_only(spark: SparkSession, dsn: str) -> None:
    """A topic cannot be overwritten."""
    writer = numbers(spark, 0, 1).write.format("nuncius").options(store=dsn, topic="t")
    with pytest.raises(AnalysisException, match='topics and queues only grow: write with mode\\("append"\\)'):
        writer.mode("overwrite").save()


def test_no_store(spark: SparkSession, tmp_path: Path) -> None:
    """Without a store there is advice, and a data directory without a server is named."""
    writer = numbers(spark, 0, 1).write.format("nuncius").option("topic", "t").mode("append")
    with pytest.raises(AnalysisException, match="which store"):
        writer.save()
    with pytest.raises(AnalysisException, match="no server runs in the data directory"):
        writer.option("dataDir", str(tmp_path)).save()


def test_other_stores(spark: SparkSession, dsn: str) -> None:
    """A topic with a partition in another store is refused rather than written to the wrong one."""
    create(dsn, "news", 2)
    sql(dsn, "insert into nuncius.stores (store_id, store_name, dsn) values (2, 'far', 'postgresql://far/x')")
    sql(dsn, "update nuncius.partitions set store_id = 2 where partition = 2")
    with pytest.raises(PySparkException, match="partition 2 of topic 'news' lives in store 2"):
        write(numbers(spark, 0, 1), dsn, topic="news")
