"""A driver that copies a topic into another, on a cluster. Run as a script by tests that kill it.

The row with the number `stop` blocks the task that comes to it as long as the test has the lock on a file
named `gate`, and says by a file named `reached` that it does so. Whoever comes to it later finds `reached`,
and passes.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from nuncius.pipeline import session
from pipeline.cluster import SETTINGS


def stopping_at(df: DataFrame, number: int, signs: str) -> DataFrame:
    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if any(int(value) == number for value in batch.column("value").to_pylist()):
                block(Path(signs))
            yield batch

    def block(directory: Path) -> None:
        try:
            os.close(os.open(directory / "reached", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        with (directory / "gate").open() as gate:
            fcntl.flock(gate, fcntl.LOCK_SH)

    return df.mapInArrow(through, df.schema)


def main(master: str, dsn: str, checkpoint: str, stop: str, signs: str) -> None:
    spark = session(master, settings={**SETTINGS, "spark.sql.execution.arrow.maxRecordsPerBatch": "500"})
    entries = (
        spark.readStream.format("nuncius").options(store=dsn, topic="in", maxRowsPerBatch="20000").load()
    )
    rows = stopping_at(entries.select("key", "value"), int(stop), signs)
    query = (
        rows.writeStream.format("nuncius")
        .options(store=dsn, topic="out", rowsPerTransaction="1000", checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    where = spark.range(1).rdd.map(lambda _: str(__import__("nuncius").__file__)).first()
    sys.stdout.write(f"done, and executors had us from {where}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
