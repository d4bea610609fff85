"""The runs of jobs, as rows in the store: their start, end and result.

A run holds an advisory lock until it ends. If a row says `running` but its lock is free, the run was killed
or its machine failed: it is shown as `interrupted`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from nuncius.pipeline import place
from nuncius.pipeline.errors import PipelineError
from nuncius.pipeline.explaining import explain
from nuncius.pipeline.jobs.job import Context, Job, Summary
from nuncius.pipeline.place import Database
from nuncius.store.queries import query

_BEGIN = query("jobs", "begin")
_HOLD = query("jobs", "hold")
_END = query("jobs", "end")
_RUNS = query("jobs", "runs")


@dataclass(frozen=True, slots=True)
class JobRun:
    run_id: int
    job: str
    state: str
    settings: dict[str, str]
    started: datetime
    finished: datetime | None
    rows_read: int
    rows_written: int
    summary: dict[str, Any] | None
    error: str | None


class JobFailed(PipelineError):
    """A job has failed."""


def perform(job: Job, context: Context) -> Summary:
    """Run a job and record its result. Spark's errors become one sentence."""
    with place.connect(context.dsn) as db:
        run_id: int = db.value(_BEGIN, job.name, msgspec.json.encode(context.settings).decode())
        db.execute(_HOLD, run_id)
        record = partial(_record, context.dsn, run_id)
        try:
            summary = job.run(context)
        except Exception as error:
            if context.stopping.is_set():
                # The error only says that Spark was stopped.
                summary = Summary()
            else:
                record("failed", Summary(), explain(error))
                if isinstance(error, PipelineError):
                    raise
                raise JobFailed(explain(error)) from error
        except BaseException:
            record("stopped", Summary(), None)
            raise
        record("stopped" if context.stopping.is_set() else "done", summary, None)
        return summary


def _record(dsn: str, run_id: int, state: str, summary: Summary, error: str | None) -> None:
    # The connection that holds the lock may be broken after a run of days.
    with place.connect(dsn) as db:
        facts = msgspec.json.encode(summary.facts, enc_hook=str).decode()
        db.execute(_END, run_id, state, summary.rows_read, summary.rows_written, facts, error)


def runs(db: Database, job: str | None = None, limit: int = 50) -> list[JobRun]:
    """Return the last runs of a job, or of all jobs, the latest first."""
    return [
        JobRun(
            row["run_id"],
            row["job_name"],
            row["state"],
            msgspec.json.decode(row["settings"]),
            row["started_at"],
            row["finished_at"],
            row["rows_read"],
            row["rows_written"],
            row["summary"] and msgspec.json.decode(row["summary"]),
            row["error"],
        )
        for row in db.rows(_RUNS, job, limit)
    ]
