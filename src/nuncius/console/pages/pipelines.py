"""Pipelines: jobs on Spark, their runs, their progress, and their reports."""

import asyncio
import json
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import FileResponse, PlainTextResponse, Response
from nicegui import app, ui

from nuncius.broker.observe.facts_page import Page, Wish
from nuncius.broker.observe.facts_pipelines import JobFacts, RunFacts
from nuncius.console.context import Console
from nuncius.console.parts.cards import facts as pairs
from nuncius.console.parts.frame import frame
from nuncius.console.parts.plain import Plain, link
from nuncius.console.parts.table import Column, Paged, Row, build_in_cards, cut
from nuncius.console.parts.words import NONE, ago, number, seconds, time

JOBS = (
    Column("job", "Job"),
    Column("state_name", "Last run", kind="state"),
    Column("when", "Started", number=True),
    Column("lag", "Lag", number=True),
    Column("runs", "Runs", number=True, wide=True),
    Column("failed", "Failed", number=True, wide=True),
)
RUNS = (
    Column("run", "Run", "started", kind="open"),
    Column("job", "Job", "job"),
    Column("state_name", "State", "state", kind="state"),
    Column("when", "Started", number=True),
    Column("took", "Took", number=True, wide=True),
    Column("read", "Read", "read", number=True),
    Column("written", "Written", "written", number=True, wide=True),
)
NO_JOB = "No job has run on this store yet. List the jobs with: nuncius pipeline jobs"
KINDS = {".html": "text/html", ".json": "application/json", ".txt": "text/plain"}
# A report is untrusted content: it may have any style, but runs no script.
ALONE = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def register(console: Console) -> None:
    @ui.page("/pipelines")
    async def pipelines(request: Request) -> None:
        with frame(console, request, "Pipelines", "pipelines") as made:
            with ui.dialog() as dialog:
                opened = ui.card().classes("viewer")

            async def open_run(key: Any) -> None:
                found = await find(console, key)
                if found is not None:
                    opened.clear()
                    with opened:
                        _show(found)
                        ui.button("Close", on_click=dialog.close).props("flat")
                    dialog.open()

            tables = (
                Paged("Jobs", JOBS, jobs, empty=NO_JOB),
                Paged("Runs", RUNS, runs, Wish("started", descending=True), "Search by job", open_run),
            )
            await made.live(build_in_cards(tables))

    async def jobs(wish: Wish) -> Page[Row]:
        return cut([job_row(each) for each in await console.facts.pipelines.jobs()], wish)

    async def runs(wish: Wish) -> Page[Row]:
        page = await console.facts.pipelines.runs(wish)
        return Page(tuple(map(run_row, page.rows)), page.total)

    @app.get("/report")
    async def report(run: int) -> Response:
        found = await find(console, run)
        path = None if found is None else report_of(found)
        if path is None or not await asyncio.to_thread(path.is_file):
            return PlainTextResponse("There is no report of that run on this machine.\n", 404)
        return FileResponse(
            path,
            media_type=KINDS[path.suffix],
            headers={"content-security-policy": ALONE},
            content_disposition_type="inline",
        )


async def find(console: Console, run: object) -> RunFacts | None:
    """Find a run. The argument comes from a browser and may be anything."""
    if not isinstance(run, int) or not 0 < run < 2**63:
        return None
    return await console.facts.pipelines.run(run)


def report_of(run: RunFacts) -> Path | None:
    """Return the path of a run's report, if it looks like one. Any program may have written the path into the
    store."""
    said = run.report or run.settings.get("report")
    if not isinstance(said, str) or Path(said).suffix not in KINDS or not Path(said).is_absolute():
        return None
    return Path(said)


def _show(run: RunFacts) -> None:
    ui.label(f"Run {run.run_id} of {run.job}").classes("section")
    pairs(
        {
            "State": run.state,
            "Started": time(run.started_at),
            "Finished": time(run.finished_at),
            "Read": number(run.rows_read),
            "Written": number(run.rows_written),
        }
    )
    if report_of(run) is not None:
        opening = link("Open its report", f"report?run={run.run_id}")
        opening.props["target"] = "_blank"
    for name, value in (("Error", run.error), ("Settings", run.settings), ("Summary", run.summary)):
        if value:
            ui.label(name).classes("section")
            text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
            Plain("pre", text[: 16 << 10], tabindex="0").classes("body")


def job_row(facts: JobFacts) -> Row:
    lag = facts.last.summary.get("lag")
    return {
        "key": facts.job,
        "job": facts.job,
        "state": facts.last.state,
        "state_name": facts.last.state,
        "when": ago(facts.last.started_at),
        "lag": number(lag) if isinstance(lag, int) else NONE,
        "runs": number(facts.runs),
        "failed": number(facts.failed),
    }


def run_row(facts: RunFacts) -> Row:
    took = None
    if facts.finished_at is not None:
        took = (facts.finished_at - facts.started_at).total_seconds()
    return {
        "key": facts.run_id,
        "run": str(facts.run_id),
        "job": facts.job,
        "state": facts.state,
        "state_name": facts.state,
        "when": ago(facts.started_at),
        "took": seconds(took),
        "read": number(facts.rows_read),
        "written": number(facts.rows_written),
    }
