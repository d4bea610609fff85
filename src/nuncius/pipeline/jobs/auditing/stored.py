"""Checks of stored entries: offsets, publishers' counts, and acknowledged or delivered messages."""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from nuncius.pipeline.jobs.auditing.findings import holes, span, suspects

# `message` identifies a message of the load; null without an identity.
STORED = (
    "topic string, partition int, offset bigint, publisher string, publisher_count bigint, message string, "
    "time timestamp"
)
# The expected offsets: from `first_offset` up to but not including `next_offset`.
ENDS = "topic string, partition int, first_offset bigint, next_offset bigint"
_PLACE = ("topic", "partition")
_COUNTED = ("topic", "publisher", "publisher_count")


def ends_of(stored: DataFrame) -> DataFrame:
    """Derive the ends of partitions from the lowest and the highest stored offset."""
    return stored.groupBy(*_PLACE).agg(
        sf.min("offset").alias("first_offset"), (sf.max("offset") + 1).alias("next_offset")
    )


def gaps(stored: DataFrame, ends: DataFrame) -> DataFrame:
    """Check that offsets are dense between the ends of a partition."""
    before = ends.select(*_PLACE, (sf.col("first_offset") - 1).alias("offset"))
    after = ends.select(*_PLACE, sf.col("next_offset").alias("offset"))
    expected = stored.join(ends, [*_PLACE]).where("offset >= first_offset and offset < next_offset")
    kept = expected.select(*_PLACE, "offset")
    missing = holes(reduce(DataFrame.unionAll, [kept, before, after]), _PLACE, "offset")
    first, last = sf.col("first"), sf.col("last")
    return suspects(missing, "gap", place="first", amount=last - first + 1, example=span(first, last))


def duplicate_offsets(stored: DataFrame) -> DataFrame:
    """Check that an offset occurs once, also at the boundary of lake and store."""
    doubled = stored.groupBy(*_PLACE, "offset").agg(sf.count("*").alias("times")).where("times > 1")
    example = sf.format_string("offset %d is there %d times", "offset", "times")
    return suspects(doubled, "duplicate_offset", amount=sf.col("times") - 1, example=example)


def duplicate_counts(stored: DataFrame) -> DataFrame:
    """Check that a publisher's count is stored once in a topic."""
    counted = stored.where("publisher is not null and publisher_count is not null")
    doubled = _several(counted, *_COUNTED)
    example = sf.format_string(
        "count %d of %s at %s and %s", "publisher_count", "publisher", _at("first"), _at("last")
    )
    return _doubled(doubled, "duplicate_count", sf.col("times") - 1, example)


def duplicate_messages(stored: DataFrame, history: DataFrame | None) -> DataFrame:
    """Check that a message is not stored more often than it was published: once, without a history. A retry
    under the same count is not another publish."""
    doubled = _several(stored.where("message is not null"), "topic", "message")
    if history is None:
        doubled = doubled.withColumn("wanted", sf.lit(1))
    else:
        attempts = sf.count_if(sf.col("publisher_count").isNull())
        publishings = history.where("event = 'published' and message is not null")
        wanted = publishings.groupBy("topic", "message").agg(
            (attempts + sf.count_distinct("publisher", "publisher_count")).alias("wanted")
        )
        doubled = doubled.join(wanted, ["topic", "message"]).where("times > wanted")
    example = sf.format_string("%s at %s and %s", "message", _at("first"), _at("last"))
    return _doubled(doubled, "duplicate_message", sf.col("times") - sf.col("wanted"), example)


def reordered(stored: DataFrame) -> DataFrame:
    """Check that a publisher's counts increase with the offsets of a partition. A repeated count is a
    duplicate, and counts here only at its first offset."""
    counted = stored.where("publisher is not null and publisher_count is not null")
    first = counted.groupBy("partition", *_COUNTED).agg(sf.min("offset").alias("offset"))
    before = (
        Window.partitionBy(*_PLACE, "publisher").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    )
    late = first.withColumn("highest", sf.max("publisher_count").over(before)).where(
        "publisher_count < highest"
    )
    example = sf.format_string(
        "count %d of %s at offset %d, after count %d", "publisher_count", "publisher", "offset", "highest"
    )
    return suspects(late, "reordered", example=example)


def count_gaps(stored: DataFrame) -> DataFrame:
    """Find counts between a publisher's lowest and highest that are not stored. If acknowledged, they are
    lost; the others were refused, never sent, or removed by retention."""
    counted = stored.where("publisher is not null and publisher_count is not null")
    missing = holes(counted, ("topic", "publisher"), "publisher_count")
    first, last = sf.col("first"), sf.col("last")
    example = sf.format_string("counts %d to %d of %s", first, last, "publisher")
    return suspects(missing, "count_gap", place="first", amount=last - first + 1, example=example)


def unstored(stored: DataFrame, history: DataFrame, ends: DataFrame) -> DataFrame:
    """Check that acknowledged and delivered entries are stored, unless retention has removed them."""
    told = history.where("event in ('acknowledged', 'delivered')")
    columns = (*_PLACE, "offset", *_COUNTED[1:], "message", "subscriber", "event")
    missing = judged(absent(told, stored).select(*columns).distinct(), ends)
    kind = (
        sf.when(sf.col("expired"), "expired")
        .when(sf.col("event") == "acknowledged", "lost")
        .otherwise("phantom")
    )
    return suspects(missing, kind, example=described())


def absent(events: DataFrame, stored: DataFrame) -> DataFrame:
    """Return the events whose entry is not stored. An entry is looked up by its offset (where no other
    message may be), or else by its publisher and count, or else by its message."""
    ways = (
        (1, sf.col("partition").cast("string"), sf.col("offset")),
        (2, sf.col("publisher"), sf.col("publisher_count")),
        (3, sf.col("message"), sf.lit(0).cast("bigint")),
    )
    each = [
        sf.struct(sf.lit(way).alias("way"), by.alias("by"), number.alias("number"))
        for way, by, number in ways
    ]
    known = sf.filter(sf.array(*each), lambda way: way["by"].isNotNull() & way["number"].isNotNull())
    wanted = events.withColumn("way", sf.get(known, sf.lit(0))).where("way is not null")
    there = stored.select("topic", sf.col("message").alias("found"), sf.explode(known).alias("way"))
    same = [sf.col(f"wanted.{name}") == sf.col(f"there.{name}") for name in ("topic", "way")]
    other = sf.coalesce(sf.col("wanted.message") != sf.col("there.found"), sf.lit(False))
    return wanted.alias("wanted").join(there.alias("there"), same[0] & same[1] & ~other, "left_anti")


def judged(missing: DataFrame, ends: DataFrame) -> DataFrame:
    """Mark missing entries that retention may have removed as `expired`: their offset is below the first one,
    or it is unknown and entries of their topic have been removed."""
    topics = ends.groupBy("topic").agg(sf.max("first_offset").alias("removed"))
    expired = sf.when(sf.col("offset").isNull(), sf.col("removed") > 0).otherwise(
        sf.col("offset") < sf.col("first_offset")
    )
    return (
        missing.join(ends, [*_PLACE], "left")
        .join(topics, "topic", "left")
        .withColumn("expired", sf.coalesce(expired, sf.lit(False)))
        .drop("first_offset", "next_offset", "removed")
    )


def described() -> Column:
    """Format the known properties of an entry."""
    parts = {"offset": "offset %s", "publisher_count": "count %s", "message": "message %s"}
    texts = [sf.when(sf.col(name).isNotNull(), sf.format_string(text, name)) for name, text in parts.items()]
    return sf.concat_ws(", ", *texts)


def _several(stored: DataFrame, *keys: str) -> DataFrame:
    """Return groups in several places. An entry that was read twice has one place: a duplicate offset."""
    place = sf.struct("partition", "offset")
    groups = stored.groupBy(*keys).agg(
        sf.count("*").alias("times"), sf.min(place).alias("first"), sf.max(place).alias("last")
    )
    return groups.where(sf.col("first") != sf.col("last"))


def _doubled(groups: DataFrame, kind: str, amount: Column, example: Column) -> DataFrame:
    """Report each group at the place of its last entry."""
    rows = groups.withColumn("partition", sf.col("last.partition"))
    return suspects(rows, kind, place=sf.col("last.offset"), amount=amount, example=example)


def _at(place: str) -> Column:
    return sf.format_string("%d:%d", f"{place}.partition", f"{place}.offset")
