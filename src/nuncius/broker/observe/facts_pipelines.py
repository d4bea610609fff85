"""Jobs on Spark, as their runs have recorded them in the store."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.store.queries import query
from nuncius.store.store import Store

RUNS = query("facts", "runs")
RUN = query("facts", "run")
JOBS = query("facts", "jobs")

SORTS = {
    "started": "run_id",
    "job": "job_name",
    "state": "state",
    "read": "rows_read",
    "written": "rows_written",
}


@dataclass(frozen=True, slots=True)
class RunFacts:
    run_id: int
    job: str
    state: str
    """running, done, stopped, failed, or interrupted: its process is gone without an end."""
    settings: dict[str, Any]
    started_at: datetime
    finished_at: datetime | None
    rows_read: int
    rows_written: int
    summary: dict[str, Any]
    error: str | None

    @property
    def report(self) -> str | None:
        """Return the path of the report page that the run wrote, if any."""
        found = self.summary.get("report") or self.summary.get("page")
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True)
class JobFacts:
    job: str
    runs: int
    failed: int
    last: RunFacts


class PipelineFactsReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def runs(self, wish: Wish | None = None) -> Page[RunFacts]:
        """List runs of jobs. Sorted by started, job, state, read or written; searched by the job's name."""
        wish = wish or Wish("started", descending=True)
        wish.check(SORTS)
        rows = await self._store.query(
            RUNS.format(sort=SORTS[wish.sort], direction=wish.direction),
            wish.search,
            wish.limit,
            wish.offset,
        )
        return Page(tuple(_run(row) for row in rows), rows[0]["count"] if rows else 0)

    async def run(self, run_id: int) -> RunFacts | None:
        rows = await self._store.query(RUN, run_id)
        return _run(rows[0]) if rows else None

    async def jobs(self) -> tuple[JobFacts, ...]:
        """List the jobs that have run, with the last run of each."""
        rows = await self._store.query(JOBS)
        return tuple(JobFacts(row["job_name"], row["runs"], row["failed"], _run(row)) for row in rows)


def _run(row: Any) -> RunFacts:
    return RunFacts(
        row["run_id"],
        row["job_name"],
        row["state"],
        msgspec.json.decode(row["settings"]),
        row["started_at"],
        row["finished_at"],
        row["rows_read"],
        row["rows_written"],
        msgspec.json.decode(row["summary"]) if row["summary"] else {},
        row["error"],
    )
