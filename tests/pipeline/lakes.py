"""Lakes for tests, filled without a store."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from nuncius.pipeline.lake import Lake, LakeFile, writer
from nuncius.pipeline.lake.files import STORED, read

BEGINNING = 1_700_000_000_000_000
"""When entry 0 arrived, in microseconds; each later one comes a second after the one before."""


def entries(first: int, end: int) -> pa.RecordBatch:
    """Made-up entries, told apart by their offsets."""
    numbers = range(first, end)
    rows = [
        {
            "offset": n,
            "key": None if n % 3 == 0 else f"key {n}",
            "value": b"\x00\xff" + str(n).encode(),
            "headers": None if n % 2 else [("a", str(n)), ("b", "")],
            "publisher": None if n % 5 else "alice",
            "time": BEGINNING + n * 1_000_000,
            "publisher_count": None if n % 5 else n,
        }
        for n in numbers
    ]
    return pa.RecordBatch.from_pylist(rows, schema=STORED)


def target(
    lake: Lake, partition_id: int = 1, *, topic: str = "news", partition: int = 1
) -> writer.FileTarget:
    return writer.FileTarget(lake.location, topic, partition, partition_id)


def write(
    lake: Lake, first: int, end: int, partition_id: int = 1, *, topic: str = "news", size: int = 1_000_000
) -> list[LakeFile]:
    """Writes files of `size` entries, which the table does not know yet."""
    place = replace(target(lake, partition_id, topic=topic), file_rows=size)
    cuts = [*range(first, end, size), end]
    batches = [entries(cut, after) for cut, after in itertools.pairwise(cuts)]
    return list(writer.write(place, batches))


def put(
    lake: Lake, first: int, end: int, partition_id: int = 1, *, topic: str = "news", size: int = 1_000_000
) -> None:
    """Archives entries, in one round."""
    lake.create()
    lake.refresh()
    lake.append(write(lake, first, end, partition_id, topic=topic, size=size), lake.rounds)


def offsets(files: Iterable[LakeFile]) -> list[int]:
    """The offsets of all entries, as they are read."""
    return [row["offset"] for row in rows(files)]


def rows(files: Iterable[LakeFile]) -> Iterator[dict[str, Any]]:
    """The stored columns of all entries, as they are read."""
    for file in files:
        for batch in read(file, file.first, file.end, STORED.names):
            yield from batch.to_pylist()
