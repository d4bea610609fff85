"""Trace files: the duration of each phase of each request, for the pipeline to evaluate.

The columns are those of the Telesto authors' middleware log: the time, and the nanoseconds a request waited,
was parsed, spent in the store (including the combiner and, for a read that found nothing, the time it was
held), and took to be answered. The format is Parquet, one file per process.
"""

import logging
import os
import time
from array import array
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

Columns = dict[str, str]
ROWS_AT_ONCE = 20_000

NODE_COLUMNS: Columns = {
    "epoch_ms": "int64",
    "waiting": "int64",
    "parsing": "int64",
    "database": "int64",
    "response": "int64",
}


class TraceUnavailable(Exception):
    """The library that writes Parquet is not installed."""


class TraceFile:
    """A trace file. Rows are collected as numbers, whose texts are stored once, and a thread writes many at a
    time: requests must not wait for their trace."""

    def __init__(self, directory: Path, name: str, columns: Columns) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise TraceUnavailable(
                "trace files need pyarrow: install the extra `trace`, or use the script ./nuncius"
            ) from None
        directory.mkdir(parents=True, exist_ok=True)
        self._schema: pa.Schema = pa.schema(
            [(column, getattr(pa, kind)()) for column, kind in columns.items()]
        )
        self._path = directory / f"{name}-{os.getpid()}-{time.time_ns()}.parquet"
        self._writer = pq.ParquetWriter(self._path, self._schema)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trace")
        self._numbers = array("q")  # row by row
        self._texts: dict[str, int] = {}

    def number_of(self, text: str) -> int:
        """Return the number that stands for the text in a row."""
        return self._texts.setdefault(text, len(self._texts))

    def add(self, row: tuple[int, ...]) -> None:
        self._numbers.extend(row)
        if len(self._numbers) >= ROWS_AT_ONCE * len(row):
            self._hand_over()

    def close(self) -> None:
        self._hand_over()
        self._thread.shutdown()
        self._writer.close()

    def _hand_over(self) -> None:
        numbers, self._numbers = self._numbers, array("q")
        if numbers:
            self._thread.submit(self._write, numbers, list(self._texts))

    def _write(self, numbers: "array[int]", texts: list[str]) -> None:
        try:
            self._writer.write_table(self._table(numbers, texts))
        except OSError:
            log.exception("a part of the trace could not be written", extra={"path": str(self._path)})

    def _table(self, numbers: "array[int]", texts: list[str]) -> "pa.Table":
        import pyarrow as pa

        width = len(self._schema)
        columns = []
        for at, field in enumerate(self._schema):
            column = numbers[at::width]
            values = pa.Array.from_buffers(pa.int64(), len(column), [None, pa.py_buffer(column)])
            columns.append(values if field.type == pa.int64() else pa.array(texts).take(values))
        return pa.table(columns, schema=self._schema)


class NodeTrace:
    """The trace of a node, shared by all its connections."""

    def __init__(self, directory: Path) -> None:
        self._file = TraceFile(directory, "node", NODE_COLUMNS)
        self._epoch = time.time_ns() - time.perf_counter_ns()

    def add(self, arrived: int, parsing: int, began: int, stored: int, sent: int) -> None:
        """Add a request. All arguments are times of time.perf_counter_ns, except `parsing`, which is a
        duration."""
        epoch_ms = (self._epoch + arrived) // 1_000_000
        waiting = max(0, began - arrived - parsing)
        self._file.add((epoch_ms, waiting, parsing, stored - began, sent - stored))

    def close(self) -> None:
        self._file.close()


class Stopwatch:
    """The times of one connection's requests."""

    def __init__(self, trace: NodeTrace) -> None:
        self._trace = trace
        self._coming: deque[tuple[int, int]] = deque()  # arrival and parsing time of each request
        self._arrived = self._began = self._stored = 0
        self._current = (0, 0)

    def arrived(self) -> None:
        self._arrived = time.perf_counter_ns()

    def parsed(self, requests: int) -> None:
        if requests:
            each = (time.perf_counter_ns() - self._arrived) // requests
            self._coming.extend([(self._arrived, each)] * requests)

    def began(self) -> None:
        self._current = self._coming.popleft()
        self._began = self._stored = time.perf_counter_ns()

    def stored(self) -> None:
        self._stored = time.perf_counter_ns()

    def sent(self) -> None:
        self._trace.add(*self._current, self._began, self._stored, time.perf_counter_ns())
