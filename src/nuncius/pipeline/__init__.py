"""Spark: topics as tables and streams, and jobs on them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from nuncius.pipeline.sessions import session as session

__all__ = ["register", "session"]


def register(spark: "SparkSession") -> None:
    """Makes format "nuncius" known to a session. Spark finds it by itself where nothing else goes wrong;
    this does not depend on that."""
    from nuncius.pipeline.source.source import NunciusSource

    spark.dataSource.register(NunciusSource)


def __getattr__(name: str) -> Any:
    if name == "session":  # the module has another name: once imported it would hide the function
        from nuncius.pipeline.sessions import session

        return session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
