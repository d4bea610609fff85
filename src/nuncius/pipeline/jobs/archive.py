"""`archive` copies topics into the lake, exactly once, and lets retention drop archived entries."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from nuncius.pipeline.catalogue import stores
from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.jobs.job import Context, Job, Summary
from nuncius.pipeline.lake import ledger
from nuncius.pipeline.lake.archive import Archive
from nuncius.pipeline.lake.files import LakeFile
from nuncius.pipeline.lake.stretches import within
from nuncius.pipeline.lake.table import Lake, Overtaken
from nuncius.pipeline.place import Database
from nuncius.pipeline.source import options
from nuncius.pipeline.source.options import ReadOptions

ROWS_PER_ROUND = 1_000_000
EVERY = 60
ALL_BUT_DEAD = "(?!dead/).*"
LOOK_SECONDS = 1.0

SETTINGS = {
    "topic": "a topic, or several with commas between them; without it and topicPattern: all but dead/...",
    "topicPattern": "a regular expression for the whole names of topics",
    "lake": "where the lake is, if it is a new one: a directory, or a URL such as s3://bucket/lake",
    "rowsPerRound": f"how many entries are committed at once ({ROWS_PER_ROUND})",
    "every": f"with --follow, how many seconds entries may wait for others to join them ({EVERY})",
}


@dataclass
class Archived:
    """Totals of the entries and files that a run has archived."""

    rows: int = 0
    rounds: int = 0
    files: int = 0
    bytes: int = 0
    topics: set[str] = field(default_factory=set)

    def add(self, files: list[LakeFile]) -> None:
        self.rounds += bool(files)
        self.files += len(files)
        for file in files:
            self.rows += file.rows
            self.bytes += file.size
            self.topics.add(file.topic)


def run(context: Context) -> Summary:
    read = _options(context)
    rows, every = context.number("rowsPerRound", ROWS_PER_ROUND), context.number("every", EVERY)
    done = Archived()
    with ledger.alone(context.dsn) as db, stores(context.dsn) as asked:
        lake = _lake(context, db)
        archive = Archive(context.spark, asked, read, lake)
        work_off(context, archive, done, rows)
        while context.follow and wait_for_more(context, archive, rows, every):
            work_off(context, archive, done, rows)
        lag = archive.waiting()
    return Summary(
        done.rows,
        done.rows,
        {
            "topics": len(done.topics),
            "rounds": done.rounds,
            "files": done.files,
            "bytes": done.bytes,
            "lag": lag,
            "lake": lake.location,
        },
    )


def work_off(context: Context, archive: Archive, done: Archived, rows: int) -> None:
    """Archive the entries that exist now. Entries that arrive meanwhile are left to the next call."""
    pending = archive.look()
    ends = {stretch.partition.partition_id: stretch.end for stretch in pending}
    before, total = done.rows, sum(stretch.rows for stretch in pending)
    while pending and not context.stopping.is_set():
        context.progress("archiving", done.rows - before, total)
        try:
            done.add(archive.round(pending, rows))
        except Overtaken:
            context.progress("another run archives, too: looking again")
        pending = within(archive.look(), ends)


def wait_for_more(context: Context, archive: Archive, rows: int, every: int) -> bool:
    """Wait until there are enough entries for a round, or some have waited long enough, so that files do not
    become too small. Return False if the user stops the run."""
    began = time.monotonic()
    while not context.stopping.wait(LOOK_SECONDS):
        waiting = archive.waiting()
        if waiting >= rows or (waiting and time.monotonic() - began >= every):
            return True
    return False


def _options(context: Context) -> ReadOptions:
    topics = {name: value for name, value in context.settings.items() if name in ("topic", "topicPattern")}
    return options.parse(
        {"store": context.dsn, **(topics or {"topicPattern": ALL_BUT_DEAD})}, streaming=False
    )


def _lake(context: Context, db: Database) -> Lake:
    """Return the store's lake. A new one is created at setting `lake`, by default in the data directory."""
    known = ledger.location(db, context.settings.get("lake"))
    if known is None:
        if context.data_dir is None:
            raise InvalidOption("where shall the lake be? Give a directory or a URL: --set lake=...")
        known = str(context.data_dir / "lake")
    lake = Lake(known)
    ledger.enter(db, lake)
    return lake


JOB = Job("archive", "moves topics into the lake, and lets retention drop what is there", run, SETTINGS)
