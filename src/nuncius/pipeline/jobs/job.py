"""The parts of a job. A job's module has a function from DataFrames to DataFrames, which tests call directly,
and a few lines that connect it: `JOB = Job("name", "what it does", run)`, where `run` takes a Context, reads
through it, writes, and returns a Summary.

    def run(context: Context) -> Summary:
        entries = context.read(topic=context.setting("topic"))
        ...

A streaming job passes its writer to `context.stream`, which starts the query, waits until it ends (or the
user stops it) and counts the rows it read.
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
from nuncius.pipeline.numbers import whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from nuncius.pipeline.jobs.streams import Streamed


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a run. `facts` are shown to users and stored as JSON: strings, numbers, lists of them."""

    rows_read: int = 0
    rows_written: int = 0
    facts: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    summary: str
    run: Callable[[Context], Summary]
    settings: Mapping[str, str] | None = None
    """The allowed settings and their meanings; None: the job checks its settings itself."""


Progress = Callable[[str, int | None, int | None], None]


def _silence(text: str, done: int | None, total: int | None) -> None: ...


@dataclass(slots=True)
class Context:
    """The session, the store and the settings that a run uses."""

    spark: SparkSession
    dsn: str
    settings: dict[str, str] = field(default_factory=dict)
    follow: bool = False
    """True: run until the user stops it. False: work off the existing entries, and end."""
    checkpoint: str = ""
    """This job's own directory (or URL) for the checkpoints of streams; empty: there is none."""
    data_dir: Path | None = None
    """The data directory, when the store is the embedded one."""
    show: Progress = _silence
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the user stops the run."""

    def setting(self, name: str, default: str | None = None) -> str:
        """Return a setting's value. A setting without a default must be given."""
        value = self.settings.get(name, default)
        if value is None:
            raise InvalidOption(f"this job needs a setting: --set {name}=...")
        return value

    def number(self, name: str, default: int, most: int | None = None) -> int:
        """Return a setting that is a number from 1 on."""
        return whole(name, self.setting(name, str(default)), 1, most)

    def read(self, *, stream: bool = False, **options: object) -> DataFrame:
        """Return a DataFrame of our source, with these options of the source besides the store."""
        reader = self.spark.readStream if stream else self.spark.read
        given = {name: _text(value) for name, value in options.items() if value is not None}
        return reader.format("nuncius").options(store=self.dsn, **given).load()

    def progress(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Show the user the progress of the run."""
        self.show(text, done, total)

    def checkpoint_for(self, **what: object) -> str:
        """Return a checkpoint directory for the stream with these properties. A stream with others (another
        topic, another window length) must not continue where this one stopped."""
        if not self.checkpoint:
            raise InvalidOption("where does the stream keep its place? Give --checkpoint DIR")
        said = json.dumps(what, sort_keys=True, default=str)
        name = quote(str(next(iter(what.values()), "")), safe="")[:60]
        return f"{self.checkpoint}/{name}-{hashlib.sha256(said.encode()).hexdigest()[:12]}"

    def stream(self, writer: DataStreamWriter, *, checkpoint: str | None = None) -> Streamed:
        """Run a streaming query: with `follow` until the run is stopped, else until it has worked off the
        entries that existed at its start. It continues from its checkpoint, by default the job's only one."""
        from nuncius.pipeline.jobs.streams import run

        place = checkpoint or self.checkpoint_for(stream=self.settings.get("topic", ""))
        return run(writer, place, follow=self.follow, stopping=self.stopping, show=self.show)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
