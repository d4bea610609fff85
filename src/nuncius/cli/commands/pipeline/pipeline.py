"""`nuncius pipeline`: Spark jobs over topics, a shell, earlier runs, and maintenance of the lake."""

import asyncio
import contextlib
import importlib.util
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nuncius.cli import amounts, output
from nuncius.cli.commands.pipeline import show as pipeline_show
from nuncius.cli.connection import Output, Yes, make_sure
from nuncius.cli.errors import INTERRUPTED
from nuncius.cli.output import Format
from nuncius.cli.stores import DataDir, Store, one_store
from nuncius.store import environment

if TYPE_CHECKING:
    from nuncius.pipeline.jobs.job import Job
    from nuncius.pipeline.lake.table import Lake

Master = Annotated[
    str,
    typer.Option(
        "--master", envvar=environment.SPARK_MASTER, help="Where Spark runs: local[*], or spark://HOST:PORT."
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's; may be repeated."),
]
LakeAt = Annotated[
    str | None, typer.Option("--lake", metavar="LOCATION", help="The lake, if not where the store says.")
]
EVERY_CORE = "local[*]"
FAULTS = 1


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Run Spark jobs over topics, and see what they did.", no_args_is_help=True)
    group.command("run")(run)
    group.command("jobs")(list_jobs)
    group.command("runs")(list_runs)
    group.command("shell")(shell)
    group.command("compact")(compact)
    group.command("expire")(expire)
    app.add_typer(group, name="pipeline")


def run(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One of `nuncius pipeline jobs`.")
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", metavar="MODULE:FUNCTION", help="A job of your own instead.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="The topic to read.")] = None,
    to: Annotated[str | None, typer.Option(metavar="TOPIC", help="The topic to publish to.")] = None,
    to_parquet: Annotated[
        str | None, typer.Option(metavar="DIR", help="With --job: write Parquet files, publish nothing.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Go on until Ctrl-C, or do what there is to do and end.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the job; may be repeated."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Where streams keep their places, if not in the data directory."),
    ] = None,
    master: Master = EVERY_CORE,
    conf: Conf = None,
    store: Store = None,
    data_dir: DataDir = None,
    form: Output = Format.TABLE,
) -> None:
    """Run a job, and show what it did. A job that reads a stream goes on where its last run ended."""
    _need_spark()
    from nuncius.cli.commands.pipeline import run as pipeline_run

    chosen = _pairs("--set", settings)
    chosen |= {key: value for key, value in (("topic", topic), ("to", to)) if value is not None}
    found = _job(name, job, to_parquet)
    _check_settings(found, chosen)
    with _opened(store, data_dir) as (dsn, directory):
        place = checkpoint or ("" if directory is None else str(directory / "pipeline" / _folder(found)))
        with pipeline_run.session(master, _pairs("--conf", conf)) as spark:
            summary, stopped = pipeline_run.perform(
                found, spark, dsn, chosen, follow=follow, checkpoint=place, data_dir=directory
            )
    pipeline_show.show_summary(found, summary, stopped, form)
    if stopped and not follow:
        raise typer.Exit(INTERRUPTED)
    if summary.facts.get("faults"):  # found by an audit
        raise typer.Exit(FAULTS)


def list_jobs(form: Output = Format.TABLE) -> None:
    """List the jobs that come with Nuncius, and what can be set."""
    _need_spark()
    from nuncius.pipeline import jobs

    pipeline_show.show_jobs([jobs.find(name) for name in jobs.BUILT_IN], form)


def list_runs(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this job's.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 20,
    store: Store = None,
    data_dir: DataDir = None,
    form: Output = Format.TABLE,
) -> None:
    """List the runs of jobs, the latest first."""
    from nuncius.pipeline import place
    from nuncius.pipeline.jobs.runs import runs

    with _opened(store, data_dir) as (dsn, _), place.connect(dsn) as db:
        found = runs(db, name, limit)
    pipeline_show.show_runs(found, form)


def shell(
    master: Master = EVERY_CORE, conf: Conf = None, store: Store = None, data_dir: DataDir = None
) -> None:
    """Open a Python with a Spark session in it that reads and writes this store."""
    _need_spark()
    from nuncius.cli.commands.pipeline import run as pipeline_run
    from nuncius.cli.commands.pipeline import shell as pipeline_shell

    with _opened(store, data_dir) as (dsn, _):
        os.environ[environment.STORE] = dsn  # the default store of reads and writes
        with pipeline_run.session(master, _pairs("--conf", conf)) as spark:
            pipeline_shell.interact(spark, dsn)


def compact(
    lake: LakeAt = None, store: Store = None, data_dir: DataDir = None, form: Output = Format.TABLE
) -> None:
    """Merge small files of the lake into larger ones. Readers notice nothing."""
    _need_spark()
    with _lake(lake, store, data_dir) as found:
        from nuncius.pipeline.lake import maintenance

        done = maintenance.compact(found)
    if form is Format.JSON:
        output.write_document(done)
    else:
        sizes = f"{output.size(done.bytes_before)} became {output.size(done.bytes_after)}"
        output.write(f"{done.files_before:,} files became {done.files_after:,}, {sizes}")


def expire(
    older_than: Annotated[str, typer.Option(metavar="TIME", help="How old entries may get, as in 365d.")],
    yes: Yes = False,
    lake: LakeAt = None,
    store: Store = None,
    data_dir: DataDir = None,
    form: Output = Format.TABLE,
) -> None:
    """Throw old entries of the lake away."""
    _need_spark()
    age = timedelta(seconds=amounts.seconds(older_than))
    make_sure(f"Throw away all archived entries older than {older_than}?", yes=yes)
    with _lake(lake, store, data_dir) as found:
        from nuncius.pipeline.lake import maintenance

        gone = maintenance.expire(found, age)
    if form is Format.JSON:
        output.write_document(gone)
    else:
        output.write(f"{gone.entries:,} entries are gone, {gone.files:,} files of {output.size(gone.bytes)}")


# Locations


@contextlib.contextmanager
def _opened(store: str | None, data_dir: Path | None) -> Iterator[tuple[str, Path | None]]:
    """Open the store and migrate it. Yield its address, and the data directory if it is embedded."""
    data_dir, store = one_store(data_dir, store)
    from nuncius.node import embedding, logs

    logs.configure()
    with embedding.opened(data_dir, store) as (dsn, directory):
        asyncio.run(_migrate(dsn))
        yield dsn, directory


async def _migrate(dsn: str) -> None:
    from nuncius.cli.database import connected
    from nuncius.store import migrations

    async with connected(dsn) as connection:
        await migrations.migrate(connection)


@contextlib.contextmanager
def _lake(location: str | None, store: str | None, data_dir: Path | None) -> Iterator["Lake"]:
    from nuncius.pipeline import place
    from nuncius.pipeline.errors import InvalidOption
    from nuncius.pipeline.lake import ledger
    from nuncius.pipeline.lake.table import Lake

    with _opened(store, data_dir) as (dsn, _):
        with place.connect(dsn) as db:
            found = ledger.location(db, location)
        if found is None:
            raise InvalidOption("there is no lake yet: nuncius pipeline run archive makes it")
        yield Lake(found)


def _need_spark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        from nuncius.pipeline.errors import PipelineError

        raise PipelineError("Spark is not installed: install it with: pip install 'nuncius[spark]'")


# Jobs and their settings


def _job(name: str | None, reference: str | None, to_parquet: str | None) -> "Job":
    if (name is None) == (reference is None):
        raise typer.BadParameter("give the name of a job, or --job for one of your own", param_hint="NAME")
    if reference is not None:
        from nuncius.pipeline.jobs.own import own_job

        return own_job(reference, to_parquet=to_parquet)
    if to_parquet is not None:
        raise typer.BadParameter("is for jobs of your own", param_hint="--to-parquet")
    from nuncius.pipeline import jobs

    return jobs.find(str(name))


def _check_settings(job: "Job", chosen: dict[str, str]) -> None:
    for name in chosen:
        if job.settings is not None and name not in job.settings:
            known = ", ".join(job.settings) or "nothing"
            raise typer.BadParameter(f"{job.name} has no setting {name!r}, but {known}", param_hint="--set")


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    found = {}
    for pair in given or []:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"is given as KEY=VALUE, not {pair!r}", param_hint=option)
        found[key] = value
    return found


def _folder(job: "Job") -> str:
    return re.sub(r"[^\w.-]", "_", job.name)
