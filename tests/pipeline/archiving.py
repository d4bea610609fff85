"""Running the archive from tests, and comparing what it has with what the store has."""

from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from nuncius.pipeline.jobs.archive import JOB
from nuncius.pipeline.jobs.job import Context, Summary
from nuncius.pipeline.lake import Lake
from pipeline.filling import sql

_ENTRIES = """
select t.topic_name as topic, p.partition, e.entry_offset as "offset", e.key, e.body as value,
    e.headers::text as headers, u.publisher_name as publisher, e.time_of_arrival as time, e.publisher_count,
    e.partition_id
from nuncius.entries e
join nuncius.partitions p using (partition_id)
join nuncius.topics t using (topic_id)
left join nuncius.publishers u using (publisher_id)
order by e.partition_id, e.entry_offset
"""


def archive(spark: SparkSession, dsn: str, lake: Path, **settings: object) -> Summary:
    """Runs the job once."""
    given = {"lake": str(lake), **{name: str(value) for name, value in settings.items()}}
    return JOB.run(Context(spark, dsn, given))


def stored(dsn: str) -> list[dict[str, Any]]:
    """All entries of the store, as the table should have them."""
    return [dict(row) for row in sql(dsn, _ENTRIES)]


def archived(lake: Path) -> list[dict[str, Any]]:
    """All rows of the table, as a stranger reads them."""
    table = DeltaTable(lake).to_pyarrow_table()
    return table.sort_by([("partition_id", "ascending"), ("offset", "ascending")]).to_pylist()  # type: ignore[no-any-return]


def ranges(lake: Path) -> list[tuple[int, int, int]]:
    """The files of the table: partition, first offset, end."""
    return [(file.partition_id, file.first, file.end) for file in Lake(lake).files()]


def confirmed(dsn: str) -> dict[int, int]:
    """How far retention may go, by partition."""
    rows = sql(
        dsn,
        "select c.partition_id, max(c.position) as position from nuncius.positions c"
        " join nuncius.subscriptions s using (subscription_id)"
        " where s.subscriber_name = 'nuncius:archive' and s.holds_retention group by 1 order by 1",
    )
    return {row["partition_id"]: row["position"] for row in rows}
