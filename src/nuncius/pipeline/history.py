"""Histories: records of clients' calls and their answers, written by load programs and fault tests for the
audit.

A history is a directory of files, one for each process, with a line of JSON for each event:

    {"event":"acknowledged","session":"411-1e","number":7,"time":1760000000000000,"topic":"news",...}

Events: `published` (about to be sent to the broker), `acknowledged` (the broker has stored it), `subscribed`
(a subscriber reads a partition from this offset on), `delivered`, and `confirmed` (the broker has confirmed
this entry and all before it in its partition). Write `published` before the call and the others after the
answer: then, whenever the process dies, the history claims nothing that did not happen. Every line is handed
to the operating system at once, so a killed process loses at most the line it was writing, and the reader
skips an incomplete last line.

`message` identifies a message of the load: the whole value, the key, or a header of the entry.
A `session` is the lifetime of one client. Within a session an entry is delivered once, unless the broker
marks it as `redelivered`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

import msgspec

from nuncius.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Event = Literal["published", "acknowledged", "subscribed", "delivered", "confirmed"]

COLUMNS = {
    "event": "string",
    "session": "string",
    "number": "bigint",
    "time": "timestamp",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "publisher": "string",
    "publisher_count": "bigint",
    "message": "string",
    "subscriber": "string",
    "redelivered": "boolean",
}
SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
_IN_JSON = ", ".join(
    f"`{name}` {'bigint' if name == 'time' else kind}"
    for name, kind in [*COLUMNS.items(), ("_broken", "string")]
)


class NotAHistory(PipelineError):
    """There are no histories at the given place, or the files contain something else."""


class _Facts(TypedDict, total=False):
    partition: int | None
    offset: int | None
    publisher: str | None
    publisher_count: int | None
    message: str | None
    subscriber: str | None
    redelivered: bool


class HistoryFile:
    """The history of one process, or of one client in it. It is not thread-safe."""

    def __init__(self, directory: Path, session: str | None = None) -> None:
        self.session = session or f"{os.getpid()}-{time.time_ns():x}"
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / f"{self.session}.jsonl"
        self._file = self.path.open("xb", buffering=0)
        self._encoder = msgspec.json.Encoder()
        self._number = 0

    def add(self, event: Event, topic: str, **facts: Unpack[_Facts]) -> None:
        self._number += 1
        line = {
            "event": event,
            "session": self.session,
            "number": self._number,
            "time": time.time_ns() // 1000,
            "topic": topic,
            **{name: fact for name, fact in facts.items() if fact is not None and fact is not False},
        }
        self._file.write(self._encoder.encode(line) + b"\n")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> HistoryFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(spark: SparkSession, location: str) -> DataFrame:
    """Read the events of all histories below a directory: JSON lines, or Parquet with the same columns (where
    a time may be a timestamp or, as in JSON, microseconds since 1970)."""
    from pyspark.errors import AnalysisException

    def files(kind: str) -> DataFrame | None:
        reader = spark.read.option("pathGlobFilter", f"*.{kind}").option("recursiveFileLookup", True)
        if kind == "jsonl":
            reader = reader.option("columnNameOfCorruptRecord", "_broken").schema(_IN_JSON)
        try:
            found = reader.format("json" if kind == "jsonl" else kind).load(location)
        except AnalysisException as error:
            if error.getCondition() == "UNABLE_TO_INFER_SCHEMA":  # no Parquet here
                return None
            raise NotAHistory(f"no histories in {location}: {error.getMessage()}") from error
        return found if found.inputFiles() else None

    lines, tables = files("jsonl"), files("parquet")
    if lines is not None:
        lines = _whole_lines(lines)
    both = [_as_events(found) for found in (lines, tables) if found is not None]
    if not both:
        raise NotAHistory(f"no histories in {location}: there are no files *.jsonl or *.parquet")
    return both[0] if len(both) == 1 else both[0].unionAll(both[1])


def _whole_lines(lines: DataFrame) -> DataFrame:
    """Drop the incomplete line that a killed process leaves; a file has at most one."""
    from pyspark.sql import functions as sf

    broken = sf.col("_broken").isNotNull() | sf.col("event").isNull()
    worst = (
        lines.where(broken)
        .groupBy(sf.col("_metadata.file_path").alias("file"))
        .agg(sf.count("*").alias("lines"))
        .orderBy(sf.desc("lines"), "file")
        .first()
    )
    if worst is not None and worst["lines"] > 1:
        raise NotAHistory(f"{worst['file']} is no history: {worst['lines']} of its lines are no events")
    return lines.where(~broken)


def _as_events(found: DataFrame) -> DataFrame:
    """Select the columns of a history."""
    from pyspark.sql import functions as sf

    kinds = dict(found.dtypes)
    if "event" not in kinds or "topic" not in kinds:
        raise NotAHistory(f"histories have columns {', '.join(COLUMNS)}, not {', '.join(kinds)}")
    columns = []
    for name, kind in COLUMNS.items():
        if name not in kinds:
            column = sf.lit(None).cast(kind)
        elif name == "time" and kinds[name] == "bigint":
            column = sf.timestamp_micros(sf.col(name))
        else:
            column = sf.col(name).cast(kind)
        columns.append(sf.coalesce(column, sf.lit(False)) if name == "redelivered" else column)
        columns[-1] = columns[-1].alias(name)
    return found.select(columns)
