"""The kinds of an audit's findings, and the step from suspects to findings.

Every check returns suspects: a row for each place with a fault, with the number of affected entries.
`findings` counts them and keeps a few as examples. Nothing is collected on the driver on the way, so a topic
full of faults costs no more than one without.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

FAULT, NOTE = "fault", "note"
EXAMPLES = 5
EXAMPLE_LENGTH = 120
CHUNK = 1_000_000  # offsets that one task compares

SUSPECTS = (
    "topic string, partition int, subscriber string, kind string, place bigint, amount bigint, example string"
)
FINDINGS = (
    "topic string, partition int, subscriber string, kind string, severity string, count bigint, "
    "examples array<string>"
)
_ABOUT = ("topic", "partition", "subscriber", "kind")


class Kind(NamedTuple):
    severity: str
    meaning: str


KINDS = {
    "lost": Kind(FAULT, "acknowledged, but not stored"),
    "gap": Kind(FAULT, "offsets are missing in the partition"),
    "duplicate_offset": Kind(FAULT, "the same offset is there more than once"),
    "duplicate_count": Kind(FAULT, "the same publisher and count is stored more than once"),
    "duplicate_message": Kind(FAULT, "stored more often than it was published"),
    "reordered": Kind(FAULT, "a publisher's entries are not in the order of their counts"),
    "phantom": Kind(FAULT, "delivered, but not stored"),
    "skipped": Kind(FAULT, "the subscriber went on beyond entries that were never delivered to it"),
    "out_of_order": Kind(FAULT, "delivered after an entry with a higher offset"),
    "repeated": Kind(FAULT, "delivered again without being announced so, or after it was confirmed"),
    "forgotten": Kind(FAULT, "confirmed, but the store does not know"),
    "ahead": Kind(FAULT, "the subscriber is beyond the end of the partition"),
    "redelivered": Kind(NOTE, "delivered again"),
    "undelivered": Kind(NOTE, "acknowledged, but not delivered yet"),
    "unconfirmed": Kind(NOTE, "delivered, but not confirmed yet"),
    "failing": Kind(NOTE, "the subscriber could not take it; it comes again"),
    "lag": Kind(NOTE, "entries that the subscriber has not confirmed"),
    "count_gap": Kind(NOTE, "a publisher's counts of which nothing is stored"),
    "expired": Kind(NOTE, "missing, but retention may have removed it"),
}


def suspects(
    rows: DataFrame,
    kind: str | Column,
    *,
    example: Column,
    place: str | Column = "offset",
    amount: int | Column = 1,
) -> DataFrame:
    """Return rows as suspects of a kind. Without a partition or subscriber column, those are null."""
    known = rows.columns

    def column(name: str, of: str) -> Column:
        return (sf.col(name) if name in known else sf.lit(None)).cast(of).alias(name)

    return rows.select(
        column("topic", "string"),
        column("partition", "int"),
        column("subscriber", "string"),
        (sf.lit(kind) if isinstance(kind, str) else kind).alias("kind"),
        (sf.col(place) if isinstance(place, str) else place).cast("bigint").alias("place"),
        (sf.lit(amount) if isinstance(amount, int) else amount).cast("bigint").alias("amount"),
        sf.left(example, sf.lit(EXAMPLE_LENGTH)).alias("example"),
    )


def findings(found: DataFrame) -> DataFrame:
    """Return a row for each topic, partition, subscriber and kind: the number of entries, and examples."""
    rank = sf.row_number().over(Window.partitionBy(*_ABOUT).orderBy("place", "example"))
    first = sf.when(sf.col("rank") <= EXAMPLES, sf.struct("rank", "example"))
    severity = sf.coalesce(
        *(sf.when(sf.col("kind") == kind, known.severity) for kind, known in KINDS.items())
    )
    return (
        found.withColumn("rank", rank)
        .groupBy(*_ABOUT)
        .agg(sf.sum("amount").alias("count"), sf.array_sort(sf.collect_list(first)).alias("first"))
        .select(*_ABOUT, severity.alias("severity"), "count", sf.col("first.example").alias("examples"))
    )


def holes(numbers: DataFrame, keys: Sequence[str], column: str) -> DataFrame:
    """Return the missing numbers between the lowest and the highest of each group, as ranges from `first` to
    `last`. Long groups are divided into chunks for several tasks."""
    chunked = numbers.select(*keys, column, sf.floor(sf.col(column) / CHUNK).alias("chunk"))
    following = sf.lead(column).over(Window.partitionBy(*keys, "chunk").orderBy(column))
    within = chunked.select(*keys, sf.col(column).alias("before"), following.alias("after"))
    ends = chunked.groupBy(*keys, "chunk").agg(sf.min(column).alias("low"), sf.max(column).alias("high"))
    beginning = sf.lead("low").over(Window.partitionBy(*keys).orderBy("chunk"))
    between = ends.select(*keys, sf.col("high").alias("before"), beginning.alias("after"))
    return (
        within.unionAll(between)
        .where(sf.col("after") - sf.col("before") > 1)
        .select(*keys, (sf.col("before") + 1).alias("first"), (sf.col("after") - 1).alias("last"))
    )


def span(first: Column, last: Column) -> Column:
    """Format a range of offsets."""
    return sf.when(first == last, sf.format_string("offset %d", first)).otherwise(
        sf.format_string("offsets %d to %d", first, last)
    )
