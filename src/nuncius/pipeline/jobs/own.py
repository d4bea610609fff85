"""A user's own job: any function of the user's module, from entries to rows.

    def long_ones(entries: DataFrame, *, least: str = "100") -> DataFrame:
        return entries.where(sf.length("value") >= int(least)).select("key", "value")

The returned rows are published to a topic, exactly once, or written as Parquet files. Column `value` becomes
the body (the sink describes the other columns); without it, each row becomes a JSON object.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nuncius.pipeline.errors import InvalidOption
from nuncius.pipeline.jobs.job import Context, Job, Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function = Callable[..., "DataFrame"]


def own_job(reference: str, *, to_parquet: str | None = None) -> Job:
    """Return the job of `module:function`, found on Python's path or in the current directory."""
    function = find(reference)

    def run(context: Context) -> Summary:
        return _run(context, reference, function, to_parquet)

    return Job(reference, (inspect.getdoc(function) or reference).split("\n")[0], run)


def find(reference: str) -> Function:
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name.isidentifier()):
        raise InvalidOption(f"a job is named as module:function, not {reference!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InvalidOption(
            f"there is no module {error.name!r} on Python's path or in the current directory"
        ) from error
    except SyntaxError as error:
        raise InvalidOption(f"module {module_name!r} is no Python: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidOption(f"module {module_name!r} has no function {name!r}")
    _travel_by_value(module)
    return function  # type: ignore[no-any-return]


def _travel_by_value(module: object) -> None:
    """Send functions that workers call (UDFs) by value, because workers do not have the user's module."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _run(context: Context, reference: str, function: Function, to_parquet: str | None) -> Summary:
    settings = {name: value for name, value in context.settings.items() if name not in {"topic", "to"}}
    topic, to = context.setting("topic"), context.settings.get("to")
    if (to is None) == (to_parquet is None):
        raise InvalidOption("where to? Give --to TOPIC or --to-parquet DIR")
    entries = context.read(stream=True, topic=topic)
    try:
        inspect.signature(function).bind(entries, **settings)
    except TypeError as error:
        raise InvalidOption(f"{reference} does not take these settings: {error}") from None
    rows = function(entries, **settings)
    place = context.checkpoint_for(topic=topic, to=to or to_parquet)
    if to is None:
        writer = rows.writeStream.format("parquet").option("path", str(to_parquet))
    else:
        writer = as_values(rows).writeStream.format("nuncius").options(store=context.dsn, topic=to)
    done = context.stream(writer, checkpoint=place)
    return Summary(done.rows_read, done.rows_written, {"batches": done.batches})


def as_values(rows: DataFrame) -> DataFrame:
    """Make rows publishable: unchanged if they have a column `value`, else as JSON objects."""
    from pyspark.sql import functions as sf

    if "value" in rows.columns:
        return rows
    return rows.select(sf.to_json(sf.struct(*rows.columns)).alias("value"))
