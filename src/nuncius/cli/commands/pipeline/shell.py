"""The shell: Python with a Spark session and some predefined names."""

import code
import contextlib
import sys
from typing import Any

from nuncius.store.address import shown

BANNER = """\
Spark {version} as `spark`, on the store at {store}.
  entries("topic")          a table of entries; more options of the source as keywords
  follow("topic")           the same as a stream
  publish(df, "topic")      append a DataFrame with a column `value` to a topic
  sf                        pyspark.sql.functions"""


def interact(spark: Any, dsn: str) -> None:
    """Execute Python from a terminal or a pipe until the input ends."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - the arrow keys work
    banner = BANNER.format(version=spark.version, store=shown(dsn)) if sys.stdin.isatty() else ""
    code.interact(banner, local=names(spark), exitmsg="")


def names(spark: Any) -> dict[str, Any]:
    """Return the predefined names of the shell."""
    import importlib

    def entries(topic: str, **options: str) -> Any:
        return spark.read.format("nuncius").options(topic=topic, **options).load()

    def follow(topic: str, **options: str) -> Any:
        return spark.readStream.format("nuncius").options(topic=topic, **options).load()

    def publish(df: Any, topic: str, **options: str) -> None:
        df.write.format("nuncius").options(topic=topic, **options).mode("append").save()

    functions = importlib.import_module("pyspark.sql.functions")
    return {"spark": spark, "sf": functions, "entries": entries, "follow": follow, "publish": publish}
