"""The rows of a task: divided into transactions, sorted by target.

Rows stay in Arrow's columns as long as possible: dividing and sorting are cheap there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nuncius.client import checks
from nuncius.client.errors import InvalidInput
from nuncius.pipeline.errors import PipelineError
from nuncius.store.calls.publishing import partition_of

MAX_BODY = 8 << 20  # the limit of every door

Numbers = npt.NDArray[np.int64]


class BadRow(PipelineError):
    """A row that no topic or queue can hold."""


def transactions(
    batches: Iterable[pa.RecordBatch], most_rows: int, most_bytes: int
) -> Iterator[tuple[pa.Table, bool]]:
    """Divide rows into portions. Yield each with whether it is the last. The division depends only on the
    rows, not on their batches."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        rest = batch
        while rest.num_rows:
            if rows >= most_rows or size >= most_bytes:
                yield pa.Table.from_batches(held), False
                held, rows, size = [], 0, 0
            sizes = _sizes(rest.column("value").slice(0, most_rows - rows))
            fitting = min(len(sizes), int(np.searchsorted(sizes, most_bytes - size)) + 1)
            held.append(rest.slice(0, fitting))
            rows, size = rows + fitting, size + int(sizes[fitting - 1])
            rest = rest.slice(fitting)
    if held:
        yield pa.Table.from_batches(held), True


def _sizes(values: pa.Array) -> Numbers:
    """Return the running total of the values' sizes in bytes."""
    sizes: Numbers = np.cumsum(pc.binary_length(values).fill_null(0).to_numpy(zero_copy_only=False))
    return sizes


@dataclass(frozen=True, slots=True)
class RowRun:
    """Rows with the same target, adjacent in the sorted columns."""

    target: int
    """Index of the topic or queue among the names."""
    partition: int
    start: int
    end: int


class Rows:
    """The rows of one transaction."""

    def __init__(self, table: pa.Table, kind: str, name: str | None) -> None:
        self._table = table
        self.length = table.num_rows
        self.names, self._codes = self._targets(kind, name)

    def _targets(self, kind: str, name: str | None) -> tuple[list[str], Numbers]:
        if name is not None:
            return [name], np.zeros(self.length, np.int64)
        column = self._column(kind)
        if column is None or column.null_count:
            raise BadRow(f"there is a row without a {kind}: column {kind!r} must not be null")
        coded = column.dictionary_encode()
        return coded.dictionary.to_pylist(), coded.indices.to_numpy().astype(np.int64)

    def lengths(self) -> list[int]:
        """Return the number of rows for each name."""
        counted: list[int] = np.bincount(self._codes, minlength=len(self.names)).tolist()
        return counted

    def partitions(self, layouts: Sequence[int], otherwise: int) -> Numbers:
        """Return the partition of each row: its own choice, else its key's, else the one that `otherwise`
        selects. `layouts` are the topics' numbers of partitions."""
        counts = np.asarray(layouts, np.int64)[self._codes]
        placed = 1 + otherwise % counts
        keys = self._column("key")
        if keys is not None:
            coded = keys.dictionary_encode()
            known = coded.dictionary.to_pylist()
            for key in known:
                _checked(checks.check_key, key)
            hashes = np.array([partition_of(key, 1 << 32) - 1 for key in known] or [0], np.int64)
            indices = coded.indices.fill_null(0).to_numpy().astype(np.int64)
            placed = np.where(_is_there(keys), 1 + hashes[indices] % counts, placed)
        chosen = self._column("partition")
        if chosen is not None:
            own = chosen.cast(pa.int64()).fill_null(0).to_numpy()
            placed = np.where(_is_there(chosen), own, placed)
        return placed

    def sort(self, partitions: Numbers | None) -> Sorted:
        """Sort rows by target. Rows with the same target keep their order."""
        places = np.zeros(self.length, np.int64) if partitions is None else partitions
        order = np.lexsort((places, self._codes))
        codes, places = self._codes[order], places[order]
        cuts = np.flatnonzero((np.diff(codes) != 0) | (np.diff(places) != 0)) + 1
        edges = [0, *cuts.tolist(), self.length]
        runs = [
            RowRun(int(codes[start]), int(places[start]), start, end)
            for start, end in itertools.pairwise(edges)
        ]
        return Sorted(self._table.take(pa.array(order)).combine_chunks(), runs, self._ranks()[order])

    def _ranks(self) -> Numbers:
        """Return the index of each row among those with the same name."""
        by_name = np.argsort(self._codes, kind="stable")
        firsts = np.concatenate(([0], np.cumsum(self.lengths())[:-1]))
        ranks = np.empty(self.length, np.int64)
        ranks[by_name] = np.arange(self.length) - firsts[self._codes[by_name]]
        return ranks

    def _column(self, name: str) -> pa.Array | None:
        if name not in self._table.column_names:
            return None
        return self._table.column(name).combine_chunks()


class Sorted:
    """Rows in the order of sending, with their columns as Python lists."""

    def __init__(self, table: pa.Table, runs: list[RowRun], ranks: Numbers) -> None:
        self._table = table
        self.runs = runs
        self.ranks: list[int] = ranks.tolist()

    def values(self) -> list[bytes]:
        column = self._table.column("value")
        if column.null_count:
            raise BadRow("there is a row without a value: column 'value' must not be null")
        largest = pc.max(pc.binary_length(column)).as_py()
        if largest > MAX_BODY:
            raise BadRow(f"a message has at most {MAX_BODY} bytes, not {largest}")
        binary: list[bytes] = column.cast(pa.binary()).to_pylist()
        return binary

    def keys(self) -> list[str | None] | None:
        return self._optional("key")

    def headers(self) -> list[str | None] | None:
        column = self._optional("headers")
        if column is None:
            return None
        return [None if row is None else _checked(checks.headers_text, dict(row)) for row in column]

    def column(self, name: str, default: Any) -> list[Any]:
        """Return a column, with the default for nulls or for a missing column."""
        found = self._optional(name)
        if found is None:
            return [default] * self._table.num_rows
        return [default if item is None else item for item in found]

    def _optional(self, name: str) -> list[Any] | None:
        if name not in self._table.column_names:
            return None
        column = self._table.column(name)
        return None if column.null_count == len(column) else column.to_pylist()


def _is_there(column: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _checked(check: Any, item: Any) -> Any:
    try:
        return check(item)
    except InvalidInput as error:
        raise BadRow(str(error)) from None
