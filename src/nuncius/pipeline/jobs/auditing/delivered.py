"""Checks of deliveries and confirmations, from histories and from the positions in the store."""

from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from nuncius.pipeline.jobs.auditing.findings import holes, span, suspects
from nuncius.pipeline.jobs.auditing.stored import described

# A row for each partition and subscriber: the next offset it reads, the same before the history was read
# (`earlier`, where the history may still grow), and the number of entries behind it that wait for redelivery.
# Rows without a subscriber are of partitions that no subscriber reads.
POSITIONS = (
    "topic string, partition int, subscriber string, first_offset bigint, earlier bigint, position bigint, "
    "next_offset bigint, failing bigint"
)
_READER = ("topic", "partition", "subscriber")


def skipped(history: DataFrame, positions: DataFrame | None, ends: DataFrame | None) -> DataFrame:
    """Check that a subscriber gets every offset from its start (its first delivery, if the start is unknown)
    up to its last delivery, and up to its confirmed position."""
    placed = history.where("partition is not null and offset is not null")
    seen = placed.where("event = 'delivered'").select(*_READER, "offset")
    missing = holes(seen.unionAll(_outside(placed, seen, positions)), _READER, "offset")
    if ends is None:
        missing = missing.withColumn("first_offset", sf.lit(0))
    else:
        missing = missing.join(ends, ["topic", "partition"], "left")
    kept = sf.greatest(sf.col("first"), sf.coalesce("first_offset", sf.lit(0)))
    lowest, highest = sf.col("first"), sf.col("last")
    gone = missing.where(lowest < kept).withColumn("last", sf.least(highest, kept - 1))
    there = missing.where(highest >= kept).withColumn("first", kept)
    return reduce(
        DataFrame.unionAll,
        [
            suspects(rows, kind, place="first", amount=highest - lowest + 1, example=span(lowest, highest))
            for kind, rows in (("skipped", there), ("expired", gone))
        ],
    )


def _outside(placed: DataFrame, seen: DataFrame, positions: DataFrame | None) -> DataFrame:
    """Return the offsets around the expected deliveries, where those exceed the actual ones."""
    starts = (
        placed.where("event = 'subscribed'").groupBy(*_READER).agg((sf.min("offset") - 1).alias("before"))
    )
    got = seen.groupBy(*_READER).agg(sf.min("offset").alias("lowest"), sf.max("offset").alias("highest"))
    known = (
        None if positions is None else positions.withColumn("position", sf.coalesce("earlier", "position"))
    )
    around = starts.join(_confirmed(placed, known), [*_READER], "full").join(got, [*_READER], "left")
    before = around.where("lowest is null or before < lowest").select(*_READER, "before")
    after = around.where("highest is null or confirmed > highest").select(*_READER, "confirmed")
    return before.unionAll(after).toDF(*_READER, "offset").where("offset is not null")


def out_of_order(history: DataFrame) -> DataFrame:
    """Check that offsets of a partition increase within a session, except for announced redeliveries. A
    repeated offset counts here only at its first delivery."""
    seen = history.where("event = 'delivered' and offset is not null")
    first = (
        seen.groupBy(*_READER, "session", "offset")
        .agg(sf.min(sf.struct("number", "time", "redelivered")).alias("first"))
        .select(*_READER, "session", "offset", "first.*")
    )
    before = (
        Window.partitionBy(*_READER, "session")
        .orderBy("number", "time")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    late = first.withColumn("highest", sf.max("offset").over(before)).where(
        "offset < highest and not redelivered"
    )
    example = sf.format_string("offset %d after offset %d", "offset", "highest")
    return suspects(late, "out_of_order", example=example)


def redelivered(history: DataFrame) -> DataFrame:
    """Find entries that were delivered more than once, for any reason."""
    again = (
        _deliveries(history)
        .groupBy(*_READER, "which")
        .agg(sf.count("*").alias("times"), sf.min("offset").alias("offset"))
        .where("times > 1")
    )
    example = sf.format_string("%s came %d times", "which", "times")
    return suspects(again, "redelivered", amount=sf.col("times") - 1, example=example)


def repeated(history: DataFrame) -> DataFrame:
    """Find redeliveries that must not happen: unannounced ones in the same session, or in one that began
    after a later entry was confirmed; and any in a session that began after the entry itself was confirmed.
    Clocks must agree if sessions ran on several machines."""
    begins = history.groupBy("session").agg(sf.min("time").alias("begin"))
    confirmations = history.where("event = 'confirmed' and offset is not null").select(
        *_READER, "offset", "time"
    )
    readers = history.where("event = 'delivered'").select(*_READER, "session").distinct()
    floors = (
        readers.join(begins, "session")
        .join(confirmations, [*_READER])
        .where("time < begin")
        .groupBy(*_READER, "session")
        .agg(sf.max("offset").alias("floor"))
    )
    done = confirmations.groupBy(*_READER, "offset").agg(sf.min("time").alias("done"))
    in_order = Window.partitionBy(*_READER, "session", "which").orderBy("number", "time")
    again = (
        _deliveries(history)
        .withColumn("rank", sf.row_number().over(in_order))
        .join(floors, [*_READER, "session"], "left")
        .join(begins, "session", "left")
        .join(done, [*_READER, "offset"], "left")
        .where("((rank > 1 or offset <= floor) and not redelivered) or done < begin")
    )
    return suspects(again, "repeated", example=described())


def unconfirmed(history: DataFrame, positions: DataFrame | None) -> DataFrame:
    """Find deliveries that neither the history nor the store reports as confirmed."""
    seen = history.where("event = 'delivered' and offset is not null").select(*_READER, "offset").distinct()
    open_ones = seen.join(_confirmed(history, positions), [*_READER], "left").where(
        "confirmed is null or offset >= confirmed"
    )
    ranges = open_ones.groupBy(*_READER).agg(
        sf.count("*").alias("amount"), sf.min("offset").alias("first"), sf.max("offset").alias("last")
    )
    example = span(sf.col("first"), sf.col("last"))
    return suspects(ranges, "unconfirmed", place="first", amount=sf.col("amount"), example=example)


def undelivered(history: DataFrame) -> DataFrame:
    """Find acknowledged entries beyond the last delivery to a subscriber of their topic. Missing entries
    before it are left to `skipped`."""
    told = (
        history.where("event = 'acknowledged'")
        .where("offset is not null or message is not null")
        .select("topic", "partition", "offset", "publisher_count", "message")
    )
    readers = history.where("event in ('delivered', 'subscribed')").select("topic", "subscriber").distinct()
    ways = history.where("event in ('delivered', 'subscribed') and offset is not null")
    place = sf.when(sf.col("event") == "subscribed", sf.col("offset") - 1).otherwise(sf.col("offset"))
    starts = ways.groupBy(*_READER).agg(sf.max(place).alias("reached"))
    by_message = _deliveries(history).select("topic", "subscriber", "message")
    missing = (
        told.join(readers, "topic")
        .join(starts, [*_READER], "left")
        .where("offset is null or reached is null or offset > reached")
        .join(by_message, ["topic", "subscriber", "message"], "left_anti")
        .distinct()
    )
    return suspects(missing, "undelivered", example=described())


def forgotten(history: DataFrame, positions: DataFrame) -> DataFrame:
    """Check that the store has every confirmation that it acknowledged, for subscribers that still exist."""
    told = (
        history.where("event = 'confirmed' and offset is not null")
        .groupBy(*_READER)
        .agg((sf.max("offset") + 1).alias("told"))
    )
    known = sf.coalesce("position", sf.lit(0))
    behind = told.join(positions, [*_READER]).where(known < sf.col("told"))
    example = sf.format_string("confirmed up to %d, stored is %d", "told", known)
    return suspects(behind, "forgotten", place=known, amount=sf.col("told") - known, example=example)


def lags(positions: DataFrame) -> DataFrame:
    """Return the lag of subscribers behind the end of their partitions, or a position beyond it, a fault."""
    places = positions.where("subscriber is not null").withColumn(
        "position", sf.coalesce("position", "first_offset")
    )
    lag = sf.col("next_offset") - sf.col("position")
    kind = sf.when(lag > 0, "lag").otherwise("ahead")
    example = sf.format_string("at %d of %d", "position", "next_offset")
    return suspects(places.where(lag != 0), kind, place="position", amount=sf.abs(lag), example=example)


def failing(positions: DataFrame) -> DataFrame:
    """Return failed deliveries that wait for redelivery."""
    rows = positions.where("failing > 0")
    example = sf.format_string("%d before offset %d", "failing", "position")
    return suspects(rows, "failing", place="position", amount=sf.col("failing"), example=example)


def _deliveries(history: DataFrame) -> DataFrame:
    """Return deliveries, with the entry in `which`: its offset, or else its message."""
    place = sf.when(sf.col("offset").isNotNull(), sf.format_string("offset %s", "offset"))
    return history.where("event = 'delivered'").withColumn("which", sf.coalesce(place, "message"))


def _confirmed(history: DataFrame, positions: DataFrame | None) -> DataFrame:
    """Return the offset up to which (exclusive) subscribers have confirmed."""
    told = history.where("event = 'confirmed'").select(*_READER, (sf.col("offset") + 1).alias("confirmed"))
    if positions is not None:
        told = told.unionAll(
            positions.where("subscriber is not null").select(*_READER, sf.col("position").alias("confirmed"))
        )
    return told.groupBy(*_READER).agg(sf.max("confirmed").alias("confirmed"))
