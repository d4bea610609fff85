"""Small frames for the tests of the audit, and what it says about them."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertSchemaEqual

from nuncius.pipeline import history
from nuncius.pipeline.jobs.auditing import delivered as audit_delivered
from nuncius.pipeline.jobs.auditing import stored as audit_stored
from nuncius.pipeline.jobs.auditing.findings import FINDINGS, SUSPECTS, findings
from nuncius.pipeline.jobs.frames import frame

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Fields = Mapping[str, Any]
Found = tuple[int | None, str | None, str, int, list[str]]


class Frames:
    """Makes frames of entries, events and positions from what matters in them."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def stored(self, rows: Iterable[Fields]) -> DataFrame:
        return self._frame(audit_stored.STORED, rows, {"topic": "t", "partition": 1, "time": NOON})

    def entries(self, *counts: int, publisher: str = "p", **fields: Any) -> DataFrame:
        """Entries of one publisher with these counts, at offsets from 0 on."""
        return self.stored(
            {"offset": n, "publisher": publisher, "publisher_count": count, "message": f"m{count}", **fields}
            for n, count in enumerate(counts)
        )

    def events(self, *rows: Fields) -> DataFrame:
        """Events of one session, in this order and a second apart."""
        numbered = (
            {
                "topic": "t",
                "partition": 1,
                "session": "one",
                "number": n,
                "time": NOON + timedelta(seconds=n),
                "redelivered": False,
                **({"subscriber": "s"} if row["event"] in ("delivered", "confirmed", "subscribed") else {}),
                **row,
            }
            for n, row in enumerate(rows)
        )
        return self._frame(history.SCHEMA, numbered, {})

    def positions(self, *rows: Fields) -> DataFrame:
        defaults = {"topic": "t", "partition": 1, "first_offset": 0, "failing": 0}
        return self._frame(audit_delivered.POSITIONS, rows, defaults)

    def ends(self, first: int, after: int) -> DataFrame:
        rows = [{"first_offset": first, "next_offset": after}]
        return self._frame(audit_stored.ENDS, rows, {"topic": "t", "partition": 1})

    def _frame(self, schema: str, rows: Iterable[Fields], defaults: Fields) -> DataFrame:
        full = [{**defaults, **row} for row in rows]
        made = frame(self.spark, schema, full)
        assert all(set(row) <= set(made.columns) for row in full)
        return made


def event(kind: str, offset: int | None = None, **fields: Any) -> dict[str, Any]:
    return {"event": kind, "offset": offset, **fields}


def delivered(*offsets: int, **fields: Any) -> list[dict[str, Any]]:
    return [event("delivered", offset, message=f"m{offset + 1}", **fields) for offset in offsets]


def said(suspects: DataFrame) -> list[Found]:
    """What the suspects of one check amount to."""
    assertSchemaEqual(suspects.schema, suspects.sparkSession.createDataFrame([], SUSPECTS).schema)
    return told(findings(suspects))


def told(found: DataFrame) -> list[Found]:
    """The findings, in order, without the topic and without what follows from the kind."""
    assertSchemaEqual(found.schema, found.sparkSession.createDataFrame([], FINDINGS).schema)
    rows = found.orderBy("topic", "kind", "partition", "subscriber").collect()
    return [(row.partition, row.subscriber, row.kind, row["count"], row.examples) for row in rows]
