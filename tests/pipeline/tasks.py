"""Tasks without a cluster: what the sink does in a worker, done in the test's own process."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@contextmanager
def task(number: int = 0, **properties: str) -> Iterator[TaskContext]:
    """This process is a task for as long as the context lasts, with what Spark would tell it."""
    context = TaskContext._getOrCreate()  # noqa: SLF001 - so do Spark's workers
    context._partitionId = number  # noqa: SLF001
    context._localProperties = {_KEYS[name]: value for name, value in properties.items()}  # noqa: SLF001
    try:
        yield context
    finally:
        TaskContext._taskContext = None  # noqa: SLF001


_KEYS = {"query": QUERY, "batch": BATCH}


def table(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)
