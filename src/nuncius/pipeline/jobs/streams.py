"""Running a streaming query inside a job: to the end of the existing entries, or until the user stops it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LOOK_SECONDS = 1
GRACE_SECONDS = 10
PACE = "1 second"  # soon enough for statistics; an idle stream polls the store that often


@dataclass(frozen=True, slots=True)
class Streamed:
    """The totals of a query, as reported by Spark."""

    batches: int = 0
    rows_read: int = 0
    rows_written: int = 0
    """Rows that the sink received; 0 if it does not report them."""
    rows_late: int = 0
    """Rows that were dropped because their window was closed."""

    def __add__(self, other: Streamed) -> Streamed:
        return Streamed(
            self.batches + other.batches,
            self.rows_read + other.rows_read,
            self.rows_written + other.rows_written,
            self.rows_late + other.rows_late,
        )


class _Account:
    """The sum of a query's progress reports. Spark keeps the last hundred, and repeats reports while the
    query is idle, so each batch counts once, with its largest figures."""

    def __init__(self) -> None:
        self._settled = Streamed()
        self._recent: dict[int, Streamed] = {}

    def add(self, reports: list[Any]) -> None:
        for report in reports:
            late = sum(state["numRowsDroppedByWatermark"] for state in report["stateOperators"])
            rows, written = report["numInputRows"], max(report["sink"]["numOutputRows"], 0)
            before = self._recent.get(report["batchId"], Streamed())
            self._recent[report["batchId"]] = Streamed(
                int(before.batches or rows > 0 or written > 0),
                max(before.rows_read, rows),
                max(before.rows_written, written),
                max(before.rows_late, late),
            )
        oldest = min((report["batchId"] for report in reports), default=0)
        for number in [number for number in self._recent if number < oldest]:
            self._settled += self._recent.pop(number)

    def total(self) -> Streamed:
        return sum(self._recent.values(), self._settled)


def run(
    writer: DataStreamWriter,
    checkpoint: str,
    *,
    follow: bool,
    stopping: threading.Event,
    show: Callable[[str, int | None, int | None], None],
) -> Streamed:
    """Start the query and wait for its end. If it fails, raise Spark's error."""
    trigger = writer.trigger(processingTime=PACE) if follow else writer.trigger(availableNow=True)
    query = trigger.option("checkpointLocation", checkpoint).start()
    account = _Account()
    try:
        _watch(query, account, stopping, show)
        if follow:
            _let_finish(query)
    finally:
        query.stop()
        account.add(query.recentProgress)
    return account.total()


def _watch(
    query: StreamingQuery,
    account: _Account,
    stopping: threading.Event,
    show: Callable[[str, int | None, int | None], None],
) -> None:
    while not query.awaitTermination(LOOK_SECONDS):
        account.add(query.recentProgress)
        so_far = account.total()
        show(f"batch {so_far.batches}", so_far.rows_read, None)
        if stopping.is_set():
            return


def _let_finish(query: StreamingQuery) -> None:
    """Wait up to GRACE_SECONDS for the end of the current batch, so that it is not repeated next time."""
    for _ in range(GRACE_SECONDS * 10):
        if not query.status["isTriggerActive"] or query.awaitTermination(0.1):  # type: ignore[arg-type]
            return
