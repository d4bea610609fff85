"""What the sink left in the store, for its tests."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipeline.filling import sql


def entries(dsn: str, topic: str) -> list[dict[str, Any]]:
    """The entries of a topic in the order of partitions and offsets."""
    rows = sql(
        dsn,
        "select p.partition, e.entry_offset as offset, e.key, e.headers::text as headers, e.body,"
        " e.publisher_count as count, b.publisher_name as publisher"
        " from nuncius.topics t join nuncius.partitions p using (topic_id)"
        " join nuncius.entries e using (partition_id) left join nuncius.publishers b using (publisher_id)"
        " where t.topic_name = $1 order by 1, 2",
        topic,
    )
    return [dict(row) for row in rows]


def bodies(dsn: str, topic: str) -> list[bytes]:
    return [entry["body"] for entry in entries(dsn, topic)]


def messages(dsn: str, queue: str) -> list[dict[str, Any]]:
    """The messages of a queue in the order in which they were put."""
    rows = sql(
        dsn,
        "select m.priority, m.receiver_id as receiver, m.headers::text as headers, m.message as body"
        " from nuncius.queues q join nuncius.messages m using (queue_id)"
        " where q.queue_name = $1 order by m.message_id",
        queue,
    )
    return [dict(row) for row in rows]


def numbers(spark: SparkSession, first: int, end: int, tasks: int = 2) -> DataFrame:
    """Rows with the numbers as values, divided among so many tasks."""
    return spark.range(first, end, 1, tasks).selectExpr("cast(id as string) as value")


def write(df: DataFrame, dsn: str, **options: object) -> None:
    """Appends a DataFrame."""
    given = {name: str(value) for name, value in options.items()}
    df.write.format("nuncius").options(store=dsn, **given).mode("append").save()
