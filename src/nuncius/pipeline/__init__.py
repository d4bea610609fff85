"""Spark: topics as tables and streams, and jobs on them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nuncius.pipeline.sessions import session as session

__all__ = ["register", "session"]


def register(spark: "SparkSession") -> None:
    """Register the format "nuncius" in a session, in case Spark's own discovery fails."""
    from nuncius.pipeline.source.source import NunciusSource

    spark.dataSource.register(NunciusSource)


def __getattr__(name: str) -> Any:
    if name == "session":  # hence the module's name `sessions`: `session` would hide the function
        from nuncius.pipeline.sessions import session

        return session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
