"""Follows and posts from the stores of a ring.

They are lists of the key-value store: whom a user follows under `NAME:subscriptions`, the times of a user's
tribbles under `NAME:posts-N`. Several tasks read a store, each a range of key hashes. Posts after a position
are read from the topic `tribbles`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path

import adbc_driver_postgresql.dbapi as postgresql  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from nuncius.pipeline import place
from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.jobs.frames import frame
from nuncius.store.queries import query
from nuncius.store.server import embedded

TOPIC = "tribbles"
HASHES = 1 << 32
FOLLOWS, POSTS = ":subscriptions", ":posts-"
_ROWS = "key binary, item binary"
_TOPIC_NOW = query("jobs", "topic_now")
_KEY_ITEMS = query("jobs", "key_items")


@dataclass(frozen=True, slots=True)
class StoreNow:
    """One store of the ring, the unique identity of its topic, and the current offsets of each partition:
    from `first` up to but not including `next`."""

    dsn: str
    topic: str
    first: list[int]
    next: list[int]

    def has_since(self, positions: Sequence[int]) -> bool:
        """Return whether all entries from these positions on are still stored."""
        return len(positions) <= len(self.next) and all(
            first <= (positions[n] if n < len(positions) else 0) <= self.next[n]
            for n, first in enumerate(self.first)
        )


def addresses(text: str) -> list[str]:
    """Parse the stores that a user names: addresses, or data directories in which a server runs."""
    found = []
    for each in filter(None, map(str.strip, text.split(","))):
        if each.startswith(("postgresql://", "postgres://")):
            found.append(each)
            continue
        server = embedded.running(Path(each))
        if server is None:
            raise InvalidOption(f"no server runs in the data directory {each!r}, and it is no address either")
        found.append(server.dsn)
    return found


def look(dsns: Sequence[str]) -> list[StoreNow]:
    """Return the current state of the stores. Later posts may or may not be read."""
    found = []
    for dsn in dsns:
        with place.connect(dsn) as db:
            row = db.row(_TOPIC_NOW, TOPIC)
            assert row is not None
            found.append(StoreNow(dsn, row["topic"], list(row["first"]), list(row["next"])))
    if len({each.topic for each in found}) < len(found):
        raise InvalidOption("a store is named twice")
    return found


def follows(spark: SparkSession, stores: Sequence[StoreNow]) -> DataFrame:
    """Return all follows: columns `user` and `author`."""
    rows = _items(spark, stores, f"%{FOLLOWS}")
    return rows.select(
        sf.expr(f"left(key, length(key) - {len(FOLLOWS)})").alias("user"), sf.col("item").alias("author")
    )


def posts(spark: SparkSession, stores: Sequence[StoreNow]) -> DataFrame:
    """Return all posts: columns `author` and `posted`."""
    rows = _items(spark, stores, f"%{POSTS}%")
    return rows.where(rf"key rlike '(?s)^.*{POSTS}[0-9]+$' and item rlike '^[0-9a-f]{{16}}$'").select(
        sf.regexp_extract("key", f"(?s)^(.*){POSTS}[0-9]+$", 1).alias("author"),
        sf.conv("item", 16, 10).cast("bigint").alias("posted"),
    )


def posts_since(
    spark: SparkSession, stores: Sequence[StoreNow], positions: Mapping[str, Sequence[int]]
) -> DataFrame:
    """Return posts after these positions: columns `author` and `posted`."""
    schema = "value binary"
    parts = [frame(spark, schema, [])]
    for each in stores:
        if each.next and list(positions[each.topic]) != each.next:
            start = list(positions[each.topic]) + [0] * len(each.next)
            options = {
                "store": each.dsn,
                "topic": TOPIC,
                "startingOffsets": _offsets(start[: len(each.next)]),
                "endingOffsets": _offsets(each.next),
            }
            parts.append(spark.read.format("nuncius").schema(schema).options(**options).load())
    body = sf.from_json(sf.col("value").cast("string"), "user string, posted bigint")
    rows = reduce(DataFrame.union, parts).select(body.alias("body"))
    return rows.where("body.user is not null and body.posted is not null").select(
        sf.col("body.user").alias("author"), sf.col("body.posted").alias("posted")
    )


def _offsets(positions: Sequence[int]) -> str:
    return json.dumps({TOPIC: {str(n): at for n, at in enumerate(positions, 1)}})


def _items(spark: SparkSession, stores: Sequence[StoreNow], pattern: str) -> DataFrame:
    """Return the items of lists whose keys match the pattern, as text. Names are UTF-8; drop other rows."""
    slices = max(1, spark.sparkContext.defaultParallelism)
    step = -(-HASHES // slices)
    parts = [
        {"dsn": each.dsn, "first": n * step, "last": min((n + 1) * step, HASHES) - 1}
        for each in stores
        for n in range(slices)
    ]
    tasks = frame(spark, "dsn string, first bigint, last bigint", parts)
    spread = tasks.repartitionByRange(len(parts), "dsn", "first")
    rows = spread.mapInArrow(partial(_read, pattern=pattern), _ROWS)
    text = rows.select(sf.col("key").cast("string"), sf.col("item").cast("string"))
    return text.where(sf.is_valid_utf8("key") & sf.is_valid_utf8("item"))


def _read(tasks: Iterator[pa.RecordBatch], pattern: str) -> Iterator[pa.RecordBatch]:
    for batch in tasks:
        for task in batch.to_pylist():
            yield from _read_range(task["dsn"], task["first"], task["last"], pattern)


def _read_range(dsn: str, first: int, last: int, pattern: str) -> Iterator[pa.RecordBatch]:
    statement = _KEY_ITEMS.format(first=first, last=last, pattern=pattern.encode().hex())
    schema = pa.schema([("key", pa.binary()), ("item", pa.binary())])
    with postgresql.connect(dsn, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        for batch in cursor.fetch_record_batch():
            yield pa.RecordBatch.from_arrays([c.cast(pa.binary()) for c in batch.columns], schema=schema)
