"""The inputs of an audit, read in an order that avoids false findings.

Clients go on publishing and reading, and retention goes on removing, while the audit reads. So the history is
read first (its claims must hold in the store from then on), the end of each partition is read before its
entries, and its beginning after them.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asyncpg import Record
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from nuncius.pipeline import history as histories
from nuncius.pipeline.catalogue import Stores, TopicPartition, look, stores
from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.jobs.auditing.delivered import POSITIONS
from nuncius.pipeline.jobs.auditing.stored import ENDS, STORED
from nuncius.pipeline.jobs.frames import frame
from nuncius.pipeline.source.options import parse
from nuncius.pipeline.source.schema import EXTRA, SCHEMA
from nuncius.pipeline.source.tiers import ReadableRange, ranges
from nuncius.store.queries import query

TIERS = ("live", "lake", "all", "none")
_SUBSCRIBERS = query("jobs", "subscribers")
Place = tuple[int, str]
"""A partition's id and a subscriber."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The settings of an audit. `topics`: None means all or, with a history, those in the history.
    `identity` of messages: `value`, `key` or `header:NAME`; None: `value` with a history, else none."""

    topics: Sequence[str] | None = None
    history: str | None = None
    tier: str = "live"
    identity: str | None = None
    lake: str | None = None

    def __post_init__(self) -> None:
        if self.identity is not None and not re.fullmatch("value|key|header:.+", self.identity):
            raise InvalidOption(f"'id' is value, key or header:NAME, not {self.identity!r}")
        if self.tier not in TIERS:
            raise InvalidOption(f"'tier' is one of {', '.join(TIERS)}, not {self.tier!r}")
        if self.tier == "lake" and self.history is not None:
            raise InvalidOption("a history tells of what is not archived yet, too: use tier=all or tier=live")
        if self.tier == "none" and self.history is None:
            raise InvalidOption("there is nothing to audit: give a history, or another tier than 'none'")


@dataclass(slots=True)
class Inputs:
    """Frames that Spark keeps until `release`."""

    rows: int = 0
    topics: Sequence[str] = ()
    stored: DataFrame | None = None
    history: DataFrame | None = None
    positions: DataFrame | None = None
    ends: DataFrame | None = None

    def keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self.rows += kept.count()
        return kept

    def release(self) -> None:
        for kept in (self.stored, self.history):
            if kept is not None:
                kept.unpersist()


def gather(spark: SparkSession, dsn: str, wanted: Wanted) -> Inputs:
    inputs = Inputs()
    try:
        with stores(dsn) as opened:
            earlier = {} if wanted.tier == "none" else _places(opened, wanted.topics)
            if wanted.history is not None:
                _keep_history(spark, inputs, wanted.history, wanted.topics)
            if wanted.tier != "none":
                _keep_stored(spark, inputs, wanted, opened, earlier)
    except BaseException:
        inputs.release()
        raise
    return inputs


def _keep_history(spark: SparkSession, inputs: Inputs, location: str, topics: Sequence[str] | None) -> None:
    events = histories.read(spark, location)
    if topics is not None:
        events = events.where(sf.col("topic").isin(list(topics)))
    inputs.history = inputs.keep(events)
    rows = inputs.history.select("topic").distinct().orderBy("topic").collect()
    inputs.topics = [row.topic for row in rows]
    if not inputs.topics:
        raise InvalidOption(
            f"the history in {location} tells nothing of {', '.join(topics or ['any topic'])}"
        )


def _keep_stored(
    spark: SparkSession, inputs: Inputs, wanted: Wanted, opened: Stores, earlier: Mapping[Place, Record]
) -> None:
    names = wanted.topics if wanted.history is None else inputs.topics
    options = _options(opened.main, names, wanted)
    places = _places(opened, names)
    partitions = look(opened, parse(options, streaming=False))
    expected = ranges(opened, parse(options, streaming=False))
    if not expected and wanted.history is None:
        raise InvalidOption(f"there is no topic {', '.join(names)}" if names else "there are no topics")
    inputs.topics = sorted({partition.topic for partition in partitions} | set(inputs.topics))
    inputs.positions = frame(spark, POSITIONS, _positions(partitions, places, earlier))
    inputs.stored = inputs.keep(_entries(spark, options, expected, wanted))
    ends = {at.partition.partition_id: at.end for at in expected}
    rows = [
        _named(at.partition) | {"first_offset": at.first, "next_offset": ends[at.partition.partition_id]}
        for at in ranges(opened, parse(options, streaming=False))
        if at.partition.partition_id in ends
    ]
    inputs.ends = frame(spark, ENDS, rows)


def narrow(entries: DataFrame, identity: str | None) -> DataFrame:
    """Select the columns that the checks need from entries of our source."""
    message = sf.lit(None)
    if identity is not None:
        column, _, header = identity.partition(":")
        message = sf.col("headers").getItem(header) if header else sf.col(column)
    columns = ("topic", "partition", "offset", "publisher", "publisher_count")
    return entries.select(*columns, message.cast("string").alias("message"), "time")


def _options(dsn: str, names: Sequence[str] | None, wanted: Wanted) -> dict[str, str]:
    options = {"store": dsn, "tier": wanted.tier, "failOnDataLoss": "false"}
    options |= {"topicPattern": ".*"} if names is None else {"topic": ",".join(names)}
    return options if wanted.lake is None else options | {"lake": wanted.lake}


def _places(opened: Stores, names: Sequence[str] | None) -> dict[Place, Record]:
    rows = opened.rows(opened.main, _SUBSCRIBERS, None if names is None else list(names))
    return {(row["partition_id"], row["subscriber_name"]): row for row in rows}


def _positions(
    partitions: Sequence[TopicPartition], places: Mapping[Place, Record], earlier: Mapping[Place, Record]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each partition and subscriber, and one for each partition without subscribers."""
    readers: dict[int, list[Place]] = {}
    for place in places:
        readers.setdefault(place[0], []).append(place)
    for partition in partitions:
        ends = _named(partition) | {"first_offset": partition.first, "next_offset": partition.next}
        if partition.partition_id not in readers:
            yield ends
        for place in readers.get(partition.partition_id, ()):
            yield ends | {
                "subscriber": place[1],
                "earlier": earlier[place]["position"] if place in earlier else 0,
                "position": places[place]["position"],
                "failing": places[place]["failing"],
            }


def _entries(
    spark: SparkSession, options: Mapping[str, str], expected: Sequence[ReadableRange], wanted: Wanted
) -> DataFrame:
    """Return the entries up to the expected ends. Entries that are published later are not read."""
    if not expected:
        return frame(spark, STORED, [])
    identity = wanted.identity or (None if wanted.history is None else "value")
    needed = {"topic", "partition", "offset", "publisher", "publisher_count", "time"}
    if identity is not None:
        needed.add("headers" if identity.startswith("header:") else identity)
    columns = StructType([column for column in [*SCHEMA, *EXTRA] if column.name in needed])
    ending: dict[str, dict[str, int]] = {}
    for at in expected:
        ending.setdefault(at.partition.topic, {})[str(at.partition.partition)] = at.end
    options = {name: value for name, value in options.items() if name != "topicPattern"}
    options |= {"topic": ",".join(ending), "endingOffsets": json.dumps(ending)}
    entries = spark.read.format("nuncius").schema(columns).options(**options).load()
    return narrow(entries, identity)


def _named(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}
