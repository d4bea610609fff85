"""The connections of a Spark worker to stores, by ADBC: PostgreSQL's binary rows straight into Arrow.

Opening a connection takes longer than reading ten thousand rows, and a worker runs many tasks, so it keeps
one for each store. A forked worker does not use its parent's connections.
"""

import os
from contextlib import closing, suppress
from typing import Any

import adbc_driver_manager as adbc
import adbc_driver_postgresql.dbapi as postgresql  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.compute as pc

from nuncius.store.queries import query

BATCH_BYTES = 4 << 20
KEPT = 4  # connections, one for each store
REMEMBERED = 100_000  # publishers of a store: a message with its own identity has its own publisher

BROKEN = (adbc.OperationalError, OSError)
"""Errors of a broken connection: before its first row, and after."""

_SETTINGS = query("source", "settings")
_PUBLISHERS = query("source", "publishers")
_links: dict[tuple[int, str], "ArrowLink"] = {}


class ArrowLink:
    """A connection on which every statement is a transaction, and the publishers it knows by name."""

    def __init__(self, dsn: str) -> None:
        self._connection = postgresql.connect(dsn, autocommit=True)
        self._forget()
        self.table(_SETTINGS)

    def cursor(self) -> Any:
        """Open a cursor that answers in batches of a few megabytes, as a context manager."""
        cursor = self._connection.cursor()
        cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(BATCH_BYTES)})
        return closing(cursor)

    def table(self, sql: str) -> pa.Table:
        """Execute a statement with a small result. Return all of it."""
        with self.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetch_arrow_table()

    def names(self, ids: pa.Array) -> pa.Array:
        """Return the names of publishers by their ids; null where the store has forgotten the name."""
        if ids.null_count == len(ids):
            return pa.nulls(len(ids), pa.string())
        places = pc.index_in(ids, self._ids, skip_nulls=True)
        if places.null_count > ids.null_count:
            if len(self._ids) >= REMEMBERED:
                self._forget()
                places = pa.nulls(len(ids), pa.int32())
            self._learn(pc.unique(ids.filter(pc.and_(pc.is_null(places), pc.is_valid(ids)))))
            places = pc.index_in(ids, self._ids, skip_nulls=True)
        return self._names.take(places)

    def _forget(self) -> None:
        self._ids = pa.array([], pa.int32())
        self._names = pa.array([], pa.string())

    def _learn(self, ids: pa.Array) -> None:
        """Fetch and remember names. An id without a name is remembered, too."""
        found = self.table(_PUBLISHERS.format(ids=", ".join(map(str, ids.to_pylist()))))
        self._ids = pa.concat_arrays([self._ids, *found.column(0).chunks])
        self._names = pa.concat_arrays([self._names, *found.column(1).chunks])

    def close(self) -> None:
        with suppress(adbc.Error):
            self._connection.close()


def linked(dsn: str) -> ArrowLink:
    """Return this worker's connection to a store."""
    key = (os.getpid(), dsn)
    if key not in _links:
        made = ArrowLink(dsn)
        while len(_links) >= KEPT:
            _links.pop(next(iter(_links))).close()
        _links[key] = made
    return _links[key]


def unlink(dsn: str) -> None:
    """Close a broken connection."""
    found = _links.pop((os.getpid(), dsn), None)
    if found is not None:
        found.close()
