"""Trace files of the load clients: Parquet, a row for each request, with the columns of the authors' log."""

import time
from pathlib import Path
from typing import Any

from nuncius.doors.telesto.trace import Columns, TraceFile

CLIENT_COLUMNS: Columns = {
    "epoch_ms": "int64",
    "waiting": "int64",
    "sent_method": "string",
    "response_time": "int64",
    "received_method": "string",
}


class ClientTrace:
    """Requests and answers of clients, with times in nanoseconds. `waiting` is the time from the client's
    previous answer to this request: the client's own share."""

    def __init__(self, directory: str) -> None:
        self._file = TraceFile(Path(directory), "client", CLIENT_COLUMNS)
        self._epoch = time.time_ns() - time.perf_counter_ns()

    def add(self, start: int, waiting: int, sent: type[Any], took: int, received: type[Any]) -> None:
        epoch_ms = (self._epoch + start) // 1_000_000
        number_of = self._file.number_of
        self._file.add((epoch_ms, waiting, number_of(sent.__name__), took, number_of(received.__name__)))

    def close(self) -> None:
        self._file.close()
