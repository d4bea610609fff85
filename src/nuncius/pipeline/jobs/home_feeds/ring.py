"""Timelines on their way to the ring: each task writes to one of the nodes it was given, which hands every
key to its owner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from nuncius.client.tribbler import TribblerClient
from nuncius.pipeline.jobs.home_feeds.state import PROGRESS, Progress

GET, PUT = "StorageRPC.Get", "Tribserver.PutMany"
NO_SUCH_KEY = 1
AT_ONCE = 100
"""Timelines of a call, at most."""
SIZE = 4 << 20
"""Characters of a call, about."""
LONGEST = 8 << 20
"""Characters of a timeline, as of every value of the ring. Who follows more than fits into it has none."""
NONE = ""
IN_FLIGHT = 3
"""Calls under way: enough to keep a node busy, few enough to leave it time for others."""


def progress_of(ring: Sequence[str]) -> Progress | None:
    """How far the ring's timelines are; None: there are none, or something else is there."""
    with TribblerClient(ring[0]) as client:
        reply = client.call(GET, {"Key": PROGRESS, "WantLease": False, "LeaseClient": ""})
    try:
        return None if reply["Status"] == NO_SUCH_KEY else msgspec.json.decode(reply["Value"], type=Progress)
    except msgspec.MsgspecError:
        return None


def advance(ring: Sequence[str], progress: Progress) -> None:
    """Says that all timelines are up to here."""
    _put(ring[0], [(PROGRESS, msgspec.json.encode(progress).decode())])


def write(ring: Sequence[str], feeds: DataFrame, progress: Progress) -> int:
    """Writes feeds as timelines of this run; answers how many there were."""
    at = sf.create_map(
        *(
            part
            for store, offsets in progress.at.items()
            for part in (sf.lit(store), sf.array(*map(sf.lit, offsets)).cast("array<bigint>"))
        )
    )
    rows = feeds.select(
        sf.concat("user", sf.lit(":timeline")).alias("key"),
        sf.to_json(
            sf.struct(
                sf.lit(progress.lineage).alias("lineage"),
                sf.lit(progress.run).alias("run"),
                at.alias("at"),
                "of",
                "users",
                "posted",
            )
        ).alias("value"),
    )
    written = rows.mapInArrow(partial(_write, ring=list(ring)), "written bigint")
    return int(written.agg(sf.coalesce(sf.sum("written"), sf.lit(0))).collect()[0][0])


def _write(batches: Iterator[pa.RecordBatch], ring: Sequence[str]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    node = ring[(context.partitionId() if context else 0) % len(ring)]
    for batch in batches:
        keys, values = (column.to_pylist() for column in batch.columns)
        _put(node, list(zip(keys, map(_bounded, values), strict=True)))
        yield pa.RecordBatch.from_pydict({"written": [batch.num_rows]})


def _bounded(value: str) -> str:
    return value if len(value) <= LONGEST else NONE


def _put(node: str, pairs: Sequence[tuple[str, str]]) -> None:
    with TribblerClient(node, in_flight=IN_FLIGHT) as client:
        questions = (
            {"Keys": [key for key, _ in some], "Values": [value for _, value in some]}
            for some in portions(pairs)
        )
        for _ in client.call_many(PUT, questions):
            pass


def portions(pairs: Sequence[tuple[str, str]]) -> Iterator[Sequence[tuple[str, str]]]:
    """Calls of many timelines, of fewer where they are long."""
    first = size = 0
    for n, (key, value) in enumerate(pairs):
        if n > first and (n - first == AT_ONCE or size + len(key) + len(value) > SIZE):
            yield pairs[first:n]
            first, size = n, 0
        size += len(key) + len(value)
    if pairs:
        yield pairs[first:]
