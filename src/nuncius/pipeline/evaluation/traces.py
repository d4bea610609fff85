"""Trace files: their directories and their contents.

A directory of traces is one run, with files `client-*.parquet` of the load clients, `node-*.parquet` of the
nodes, or both; or it has a directory for each run. Those of a series are named after the varied parameter:
`clients_96` or `clients=96`.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from nuncius.pipeline.errors import PipelineError

# As `bench telesto` and the nodes write them, in nanoseconds except for the time of day, plus the run.
CLIENTS = (
    "step string, epoch_ms bigint, waiting bigint, sent_method string, response_time bigint, "
    "received_method string"
)
NODES = "step string, epoch_ms bigint, waiting bigint, parsing bigint, database bigint, response bigint"
PHASES = ("waiting", "parsing", "database", "response")
_END = b"PAR1"
_VARIED = re.compile(r"(?P<parameter>.+?)[_=](?P<value>\d+(\.\d+)?)")


class NoTraces(PipelineError):
    """There are no trace files at the given place, or they contain too little."""


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One run, of a series if a parameter was varied."""

    name: str
    directory: Path
    parameter: str | None = None
    value: float | None = None


def steps_in(directory: Path) -> list[TraceStep]:
    """Return the runs in a directory, in the order of the series."""
    places = [directory, *sorted(path for path in directory.glob("*") if path.is_dir())]
    found = []
    for place in places:
        if files(place, "client") or files(place, "node"):
            varied = _VARIED.fullmatch(place.name) if place != directory else None
            value = (varied["parameter"], float(varied["value"])) if varied else (None, None)
            found.append(TraceStep(place.name, place, *value))
    if not found:
        raise NoTraces(
            f"no trace files in {directory}: there are no files client-*.parquet or node-*.parquet"
        )
    return sorted(found, key=lambda step: (step.parameter or "", step.value or 0, step.name))


def files(directory: Path, side: str) -> list[str]:
    return sorted(str(path) for path in directory.glob(f"{side}-*.parquet"))


def read(spark: SparkSession, steps: Iterable[TraceStep], side: str, schema: str) -> DataFrame | None:
    """Return the traces of one side ("client" or "node") of all runs, or None if there are none."""
    frames = [
        spark.read.parquet(*map(_complete, paths)).withColumn("step", sf.lit(step.name))
        for step in steps
        if (paths := files(step.directory, side))
    ]
    if not frames:
        return None
    columns: Sequence[str] = spark.createDataFrame([], schema).columns
    return reduce(DataFrame.unionAll, [frame.select(*columns) for frame in frames])


def _complete(path: str) -> str:
    """Refuse an unfinished file: Parquet is unreadable without its footer."""
    with Path(path).open("rb") as file:
        file.seek(max(len(_END), Path(path).stat().st_size - len(_END)))  # the header has the same bytes
        if file.read() != _END:
            raise NoTraces(f"{path} is not complete: its node or client still runs, or was killed; remove it")
    return path
