"""Output of `nuncius pipeline` about jobs and their runs."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nuncius.cli import output
from nuncius.cli.output import Cell, Format

if TYPE_CHECKING:
    from nuncius.pipeline.jobs.job import Job, Summary
    from nuncius.pipeline.jobs.runs import JobRun


def show_jobs(jobs: Sequence["Job"], form: Format) -> None:
    if form is Format.JSON:
        output.write_document(
            [{"name": job.name, "summary": job.summary, "settings": dict(job.settings or {})} for job in jobs]
        )
        return
    for job in jobs:
        output.write(f"{job.name}: {job.summary}")
        for name, meaning in (job.settings or {}).items():
            output.write(f"    {name:<12} {meaning}")


def show_runs(runs: Sequence["JobRun"], form: Format) -> None:
    if form is Format.JSON:
        output.write_document(runs)
        return
    output.write_table(
        ("run", "job", "state", "began", "took", "read", "written", "what"),
        [
            (
                str(run.run_id),
                run.job,
                run.state,
                f"{run.started:%Y-%m-%d %H:%M:%S}",
                _took(run),
                run.rows_read,
                run.rows_written,
                run.error or _brief(run.summary or {}),
            )
            for run in runs
        ],
        empty="no job has run yet",
    )


def show_summary(job: "Job", summary: "Summary", stopped: bool, form: Format) -> None:
    state = "stopped" if stopped else "done"
    if form is Format.JSON:
        output.write_document(
            {
                "job": job.name,
                "state": state,
                "rows_read": summary.rows_read,
                "rows_written": summary.rows_written,
                "facts": summary.facts,
            }
        )
        return
    facts: dict[str, Cell] = {
        "job": job.name,
        "state": state,
        "rows read": summary.rows_read,
        "rows written": summary.rows_written,
    }
    lists = {name: fact for name, fact in summary.facts.items() if isinstance(fact, list)}
    output.write_facts(
        facts | {name: _cell(fact) for name, fact in summary.facts.items() if name not in lists}
    )
    for name, lines in lists.items():
        output.write(f"\n{name}")
        for line in lines:
            output.write(f"  {output.printable(str(line))}")
    sys.stdout.flush()


def _cell(fact: object) -> Cell:
    return fact if isinstance(fact, str | int) and not isinstance(fact, bool) else output.json_line(fact)


def _took(run: "JobRun") -> str:
    return "-" if run.finished is None else f"{(run.finished - run.started).total_seconds():.1f} s"


def _brief(summary: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {fact}" for name, fact in summary.items() if isinstance(fact, str | int | float)
    )
