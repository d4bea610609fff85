"""The runs of jobs, as rows in the store: their start, end and result.

A run holds an advisory lock until it ends. If a row says `running` but its lock is free, the run was killed
or its machine failed: it is shown as `interrupted`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from nuncius.pipeline import place
from nuncius.pipeline.errors import PipelineError
from nuncius.pipeline.explaining import explain
from nuncius.pipeline.jobs.job import Context, Job, Summary
from nuncius.pipeline.place import Database

_BEGIN = "insert into nuncius.pipeline_runs (job_name, settings) values ($1, $2::jsonb) returning run_id"
_HOLD = "select pg_advisory_lock(78011, ($1::bigint % 2147483647)::integer)"
_END = """
update nuncius.pipeline_runs set state = $2, finished_at = now(), rows_read = $3, rows_written = $4,
    summary = $5::jsonb, error = $6
where run_id = $1
"""
_LIST = """
select r.run_id, r.job_name, r.settings::text, r.started_at, r.finished_at, r.rows_read, r.rows_written,
    r.summary::text, r.error,
    case when r.state = 'running' and not exists (
        select from pg_locks l
        where l.locktype = 'advisory' and l.classid = 78011 and l.objid = r.run_id % 2147483647
            and l.database = (select oid from pg_database where datname = current_database()))
    then 'interrupted' else r.state end as state
from nuncius.pipeline_runs r
where r.job_name = $1 or $1 is null
order by r.run_id desc limit $2
"""


@dataclass(frozen=True, slots=True)
class Run:
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
    with _recorded(job, context) as record:
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


class _Record:
    def __init__(self, dsn: str, run_id: int) -> None:
        self._dsn = dsn
        self._run_id = run_id

    def __call__(self, state: str, summary: Summary, error: str | None) -> None:
        # The connection that holds the lock may be broken after a run of days.
        with place.connect(self._dsn) as db:
            facts = msgspec.json.encode(summary.facts, enc_hook=str).decode()
            db.execute(_END, self._run_id, state, summary.rows_read, summary.rows_written, facts, error)


@contextmanager
def _recorded(job: Job, context: Context) -> Iterator[_Record]:
    with place.connect(context.dsn) as db:
        settings = msgspec.json.encode(context.settings).decode()
        run_id: int = db.value(_BEGIN, job.name, settings)
        db.execute(_HOLD, run_id)
        yield _Record(context.dsn, run_id)


def runs(db: Database, job: str | None = None, limit: int = 50) -> list[Run]:
    """Return the last runs of a job, or of all jobs, the latest first."""
    return [
        Run(
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
        for row in db.rows(_LIST, job, limit)
    ]
