"""Writing timelines to the ring: each task writes to one of the given nodes, which passes every key to its
owner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from nuncius.client.tribbler import TribblerClient
from nuncius.pipeline.jobs.home_feeds.state import PROGRESS, FeedsProgress

GET, PUT = "StorageRPC.Get", "Tribserver.PutMany"
NO_SUCH_KEY = 1
AT_ONCE = 100
"""Largest number of timelines in a call."""
SIZE = 4 << 20
"""Approximate number of characters in a call."""
LONGEST = 8 << 20
"""Limit of characters in a timeline, as in every value of the ring. A user with a longer one has none."""
NONE = ""
IN_FLIGHT = 3
"""Concurrent calls: enough to keep a node busy, few enough to leave it time for other clients."""


def progress_of(ring: Sequence[str]) -> FeedsProgress | None:
    """Read the progress of the ring's timelines. Return None if there is none or it is invalid."""
    with TribblerClient(ring[0]) as client:
        reply = client.call(GET, {"Key": PROGRESS, "WantLease": False, "LeaseClient": ""})
    if reply["Status"] == NO_SUCH_KEY:
        return None
    try:
        return msgspec.json.decode(reply["Value"], type=FeedsProgress)
    except msgspec.MsgspecError:
        return None


def advance(ring: Sequence[str], progress: FeedsProgress) -> None:
    """Store the progress that all timelines have reached."""
    _put(ring[0], [(PROGRESS, msgspec.json.encode(progress).decode())])


def write(ring: Sequence[str], feeds: DataFrame, progress: FeedsProgress) -> int:
    """Write feeds as timelines of this run. Return their number."""
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
    """Divide timelines into calls, limited by number and by size."""
    first = size = 0
    for n, (key, value) in enumerate(pairs):
        if n > first and (n - first == AT_ONCE or size + len(key) + len(value) > SIZE):
            yield pairs[first:n]
            first, size = n, 0
        size += len(key) + len(value)
    if pairs:
        yield pairs[first:]
