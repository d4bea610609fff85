"""Jobs on a terminal: a quiet Spark session, a progress bar, and a clean end on Ctrl-C."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from nuncius.node.logs import escape
from nuncius.pipeline.jobs.job import Context, Job, Summary
from nuncius.pipeline.jobs.runs import perform as recorded
from nuncius.store import environment

LOOK_SECONDS = 0.5


@contextlib.contextmanager
def session(master: str, settings: Mapping[str, str]) -> Iterator[Any]:
    """Open a session for as long as the context lasts. We report failures ourselves, so Spark's log is off
    unless NUNCIUS_DEBUG is set."""
    from nuncius.pipeline.sessions import keep_quiet
    from nuncius.pipeline.sessions import session as open_session

    debug = environment.debugging()
    level = {"spark.log.level": "WARN" if debug else "OFF"}
    with _explained():
        spark = open_session(master, settings=level | dict(settings))
    if not debug:
        keep_quiet()
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Reduce an error of the session's start to one sentence."""
    from nuncius.pipeline.errors import PipelineError
    from nuncius.pipeline.explaining import explain

    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"Spark does not start: {explain(error)}") from error


def perform(
    job: Job,
    spark: Any,
    dsn: str,
    settings: dict[str, str],
    *,
    follow: bool,
    checkpoint: str,
    data_dir: Path | None,
) -> tuple[Summary, bool]:
    """Run a job. Return its summary, and whether it was stopped."""
    with _bar(spark, job.name) as show:
        context = Context(spark, dsn, settings, follow, checkpoint, data_dir, show)
        with stopped_by_signals(context):
            summary = recorded(job, context)
    return summary, context.stopping.is_set()


@contextlib.contextmanager
def stopped_by_signals(context: Context) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM ask the run to end, and the second one end it."""

    def heard(number: int, frame: FrameType | None) -> None:
        del number, frame
        if context.stopping.is_set():
            raise KeyboardInterrupt
        context.stopping.set()
        if not context.follow:
            # From another thread: this one may be in the middle of a call to Spark.
            threading.Thread(target=context.spark.sparkContext.cancelAllJobs, daemon=True).start()

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _bar(spark: Any, title: str) -> Iterator[Any]:
    """Show a progress bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda text, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        line = progress.add_task(title, total=None, said="")

        def show(text: str, done: int | None, total: int | None) -> None:
            rows = "" if done is None else f", {done:,} rows" if total is None else f", {done:,} of {total:,}"
            progress.update(line, said=escape(f"{text}{rows}"))

        leaving = threading.Event()
        watcher = threading.Thread(target=_watch, args=(spark, progress, line, leaving), daemon=True)
        watcher.start()
        try:
            yield show
        finally:
            leaving.set()
            watcher.join()


def _watch(spark: Any, progress: Any, line: Any, leaving: threading.Event) -> None:
    """Advance the bar by the tasks of Spark's active stages."""
    tracker = spark.sparkContext.statusTracker()
    while not leaving.wait(LOOK_SECONDS):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        tasks = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
        if tasks:
            progress.update(
                line, completed=sum(done for done, _ in tasks), total=sum(all_ for _, all_ in tasks)
            )
