"""What a job is. A job's module has a function from DataFrames to DataFrames, which tests call as it is, and
a few lines that connect it: `JOB = Job("name", "what it does", run)`, where `run` takes a Context, reads
through it, writes, and answers with a Summary.

    def run(context: Context) -> Summary:
        entries = context.read(topic=context.setting("topic"))
        ...

A job that streams hands its writer to `context.stream`, which starts the query, waits for its end (or for
the user's wish to end it) and counts what it read.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from nuncius.pipeline.errors import InvalidOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from nuncius.pipeline.jobs.streams import Streamed


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run did. `facts` are shown to people and kept as JSON: strings, numbers, lists of them."""

    rows_read: int = 0
    rows_written: int = 0
    facts: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    summary: str
    run: Callable[[Context], Summary]
    settings: Mapping[str, str] | None = None
    """What can be set, and what it means; None: the job looks at its settings itself."""


Progress = Callable[[str, int | None, int | None], None]


def _silence(text: str, done: int | None, total: int | None) -> None: ...


@dataclass(slots=True)
class Context:
    """What a run has to work with."""

    spark: SparkSession
    dsn: str
    settings: dict[str, str] = field(default_factory=dict)
    follow: bool = False
    """Go on until somebody stops the run; otherwise do what there is to do, and end."""
    checkpoint: str = ""
    """A directory (or URL) of this job's own, where streams keep their places; empty: there is none."""
    data_dir: Path | None = None
    """The data directory, when the store is the embedded one."""
    show: Progress = _silence
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the user wants the run to end."""

    def setting(self, name: str, default: str | None = None) -> str:
        """A setting's value. One without a default must be given."""
        value = self.settings.get(name, default)
        if value is None:
            raise InvalidOption(f"this job needs a setting: --set {name}=...")
        return value

    def read(self, *, stream: bool = False, **options: object) -> DataFrame:
        """A DataFrame of our source. Options are those of the source; the store is known."""
        reader = self.spark.readStream if stream else self.spark.read
        given = {name: _text(value) for name, value in options.items() if value is not None}
        return reader.format("nuncius").options(store=self.dsn, **given).load()

    def progress(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Tells the user how far the run is."""
        self.show(text, done, total)

    def checkpoint_for(self, **what: object) -> str:
        """A directory for the stream with these properties: one with others (another topic, another length
        of windows) is another stream, and must not go on where this one stopped."""
        if not self.checkpoint:
            raise InvalidOption("where does the stream keep its place? Give --checkpoint DIR")
        said = json.dumps(what, sort_keys=True, default=str)
        name = quote(str(next(iter(what.values()), "")), safe="")[:60]
        return f"{self.checkpoint}/{name}-{hashlib.sha256(said.encode()).hexdigest()[:12]}"

    def stream(self, writer: DataStreamWriter, *, checkpoint: str | None = None) -> Streamed:
        """Runs a streaming query to its end: with `follow` until the run is stopped, else until it has
        worked off what was there when it began. It goes on where its checkpoint says, by default the only
        one this job has."""
        from nuncius.pipeline.jobs.streams import run

        place = checkpoint or self.checkpoint_for(stream=self.settings.get("topic", ""))
        return run(writer, place, follow=self.follow, stopping=self.stopping, show=self.show)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
