"""Trace files: what each request took, phase by phase, for the pipeline to evaluate.

The columns are those of the Telesto authors' log of their middleware: when, and the nanoseconds a request
waited to be looked at, was parsed, spent in the store (which includes being combined with others and, for
a read that found nothing, being held), and took to be answered. Parquet, a file a process.
"""

import os
import time
from collections import deque
from pathlib import Path
from typing import Any

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
    """Rows are collected and written a good many at a time."""

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
        self._table = pa.table
        self._path = directory / f"{name}-{os.getpid()}-{time.time_ns()}.parquet"
        self._writer = pq.ParquetWriter(self._path, self._schema)
        self._rows: list[tuple[Any, ...]] = []

    def add(self, row: tuple[Any, ...]) -> None:
        self._rows.append(row)
        if len(self._rows) >= ROWS_AT_ONCE:
            self._write()

    def close(self) -> None:
        self._write()
        self._writer.close()

    def _write(self) -> None:
        if self._rows:
            columns = list(zip(*self._rows, strict=True))
            self._rows.clear()
            self._writer.write_table(self._table(columns, schema=self._schema))


class NodeTrace:
    """One for all connections of a node."""

    def __init__(self, directory: Path) -> None:
        self._file = TraceFile(directory, "node", NODE_COLUMNS)
        self._epoch = time.time_ns() - time.perf_counter_ns()

    def add(self, arrived: int, parsing: int, began: int, stored: int, sent: int) -> None:
        """Moments by time.perf_counter_ns, but for `parsing`, which is a duration."""
        epoch_ms = (self._epoch + arrived) // 1_000_000
        waiting = max(0, began - arrived - parsing)
        self._file.add((epoch_ms, waiting, parsing, stored - began, sent - stored))

    def close(self) -> None:
        self._file.close()


class Stopwatch:
    """One connection's moments, request by request."""

    def __init__(self, trace: NodeTrace) -> None:
        self._trace = trace
        self._coming: deque[tuple[int, int]] = deque()  # when each request arrived, how long it was parsed
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
