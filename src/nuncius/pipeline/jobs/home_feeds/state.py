"""The state between runs of `timelines`: tables beside the checkpoint, and one key of the ring.

The key holds the progress of the timelines on the ring and identifies the matching tables. It is written
last, so the next run repeats all the work of a run that dies. Without the tables (another machine, an emptied
directory) the next run starts from the beginning, under another lineage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from nuncius.pipeline.jobs.home_feeds.feeds import AUTHORS, USERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROGRESS = "timelines:progress"


class FeedsProgress(msgspec.Struct, frozen=True):
    """The value of the key: the position in each store's topic up to which all timelines of a lineage are
    complete. A topic that was deleted and created again counts as another topic."""

    lineage: str
    run: int
    at: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one run."""

    spark: SparkSession
    directory: str

    @classmethod
    def of(cls, spark: SparkSession, checkpoint: str, progress: FeedsProgress) -> Tables:
        return cls(spark, f"{checkpoint}/{progress.lineage}-{progress.run}")

    def exist(self) -> bool:
        return bool(self._file_system().exists(self._path("users/_SUCCESS")))

    def write(self, authors: DataFrame, users: DataFrame) -> None:
        """Write the tables. Later steps read them instead of computing them again, because follows may change
        in between."""
        authors.write.mode("overwrite").parquet(f"{self.directory}/authors")
        users.write.mode("overwrite").parquet(f"{self.directory}/users")

    def authors(self) -> DataFrame:
        return self.spark.read.schema(AUTHORS).parquet(f"{self.directory}/authors")

    def users(self) -> DataFrame:
        return self.spark.read.schema(USERS).parquet(f"{self.directory}/users")

    def remove(self) -> None:
        self._file_system().delete(self._path(""), True)

    def _path(self, name: str) -> Any:
        assert self.spark.sparkContext._jvm is not None  # noqa: SLF001 - no other way to Hadoop's file systems
        path = f"{self.directory}/{name}".rstrip("/")
        return self.spark.sparkContext._jvm.org.apache.hadoop.fs.Path(path)  # noqa: SLF001

    def _file_system(self) -> Any:
        java = self.spark.sparkContext._jsc  # noqa: SLF001
        return self._path("").getFileSystem(java.hadoopConfiguration())
