"""What a run of `timelines` leaves for the next: tables beside the checkpoint, and one key of the ring.

The key says how far the timelines on the ring are, and which tables belong to that. It is written last, so a
run that dies has done nothing that the next one does not do again. Without the tables (another machine, a
directory that was emptied) the next run begins anew, under another lineage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from nuncius.pipeline.jobs.home_feeds.feeds import AUTHORS, USERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROGRESS = "timelines:progress"


class Progress(msgspec.Struct, frozen=True):
    """What the key says: up to which position of each store's topic every timeline of a lineage holds. A
    topic that was made anew is another topic."""

    lineage: str
    run: int
    at: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of one run."""

    spark: SparkSession
    directory: str

    @classmethod
    def of(cls, spark: SparkSession, checkpoint: str, progress: Progress) -> Tables:
        return cls(spark, f"{checkpoint}/{progress.lineage}-{progress.run}")

    def exist(self) -> bool:
        return bool(self._file_system().exists(self._path("users/_SUCCESS")))

    def write(self, authors: DataFrame, users: DataFrame) -> None:
        """Everything after this uses what was written: a table that Spark computes twice need not be the same
        twice, when somebody follows somebody in between."""
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
