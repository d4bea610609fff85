"""The catalogue: topics and partitions, the store of each partition, and its range of offsets.

The catalogue is in the store we connect to, which is store 1. Entries of a partition are in the store that
the catalogue names. The ends of partitions in other stores are read there, from all stores concurrently.
"""

import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import asyncpg

from nuncius.pipeline.errors import NoSuchTopic, PipelineError
from nuncius.pipeline.patience import patiently
from nuncius.pipeline.place import Database
from nuncius.pipeline.source.options import ReadOptions
from nuncius.pipeline.source.positions import PartitionKey
from nuncius.store.address import shown
from nuncius.store.errors import StoreUnavailable
from nuncius.store.queries import procedure, query

_BROKEN = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
)
_NOT_OURS = (asyncpg.UndefinedFunctionError, asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError)

_TOPICS = query("topics", "names")


@dataclass(frozen=True, slots=True)
class TopicPartition:
    """A partition and its readable range of offsets: from `first` up to but not including `next`."""

    topic: str
    topic_id: int
    partition: int
    partition_id: int
    dsn: str
    first: int
    next: int

    @property
    def place(self) -> PartitionKey:
        return PartitionKey(self.topic, self.topic_id, self.partition)

    def __str__(self) -> str:
        return str(self.place)


class Stores:
    """Connections to stores, opened when they are needed and reopened when they break."""

    def __init__(self, main: str) -> None:
        self.main = main
        self._open: dict[str, Database] = {}

    def rows(self, dsn: str, sql: str, *arguments: Any) -> list[asyncpg.Record]:
        """Execute a statement in a store and return its rows. It may be executed several times. A store that
        was never reached is not waited for: its address may be wrong."""
        broken = (*_BROKEN, StoreUnavailable) if dsn in self._open else _BROKEN
        try:
            return patiently(
                lambda: self._database(dsn).rows(sql, *arguments), broken, partial(self._drop, dsn)
            )
        except _NOT_OURS as error:
            raise PipelineError(
                f"the database at {shown(dsn)} has no nuncius schema, or one older than this program: "
                "bring it up to date with 'nuncius migrate'"
            ) from error

    def close(self) -> None:
        for dsn in list(self._open):
            self._drop(dsn)

    def _database(self, dsn: str) -> Database:
        if dsn not in self._open:
            self._open[dsn] = Database(dsn)
        return self._open[dsn]

    def _drop(self, dsn: str) -> None:
        found = self._open.pop(dsn, None)
        if found is not None:
            found.close()


def stores(main: str) -> closing[Stores]:
    """Open connections for as long as the context lasts."""
    return closing(Stores(main))


def look(stores: Stores, options: ReadOptions) -> list[TopicPartition]:
    """Return the existing partitions that the options name, ordered by topic and number."""
    names = options.topics or _matching(stores, options.pattern or "")
    rows = stores.rows(stores.main, procedure("readable_ranges", 1), list(names))
    elsewhere: dict[str, list[int]] = {}
    found = []
    for row in rows:
        if options.partitions is not None and row["partition"] not in options.partitions:
            continue
        dsn = stores.main if row["store_id"] == 1 else _address(row)
        if row["next"] is None:
            elsewhere.setdefault(dsn, []).append(row["partition_id"])
        found.append(
            TopicPartition(
                row["topic_name"],
                row["topic_id"],
                row["partition"],
                row["partition_id"],
                dsn,
                row["first_offset"],
                row["first_offset"] if row["next"] is None else row["next"],
            )
        )
    if not elsewhere:
        return found
    ends = _ends(stores, elsewhere)
    return [replace(p, next=max(p.first, ends.get(p.partition_id, p.next))) for p in found]


def expect(options: ReadOptions, found: Iterable[TopicPartition]) -> None:
    """Fail if a topic or a partition that was named does not exist."""
    topics: dict[str, set[int]] = {}
    for partition in found:
        topics.setdefault(partition.topic, set()).add(partition.partition)
    for name in options.topics:
        if name not in topics and options.partitions is None:
            raise NoSuchTopic(
                f"there is no topic {name!r}: publish to it, or make it with 'nuncius topic create'"
            )
    missing = (options.partitions or frozenset()) - set().union(*topics.values())
    if missing:
        raise NoSuchTopic(
            f"there is no partition {', '.join(map(str, sorted(missing)))} of "
            f"{', '.join(options.topics) or options.pattern}"
        )
    for offsets in (options.start, options.end):
        if isinstance(offsets, Mapping):
            _expect_offsets(offsets, topics)


def _expect_offsets(offsets: Mapping[str, Mapping[int, int]], topics: Mapping[str, set[int]]) -> None:
    for topic, places in offsets.items():
        for number in places:
            if number not in topics.get(topic, ()):
                raise NoSuchTopic(
                    f"offsets are given for partition {number} of topic {topic!r}, "
                    "which is not there or not to be read"
                )


def _matching(stores: Stores, pattern: str) -> list[str]:
    names = [row["topic_name"] for row in stores.rows(stores.main, _TOPICS)]
    return [name for name in names if re.fullmatch(pattern, name)]


def _address(row: asyncpg.Record) -> str:
    if not row["dsn"]:
        raise PipelineError(
            f"partition {row['partition']} of topic {row['topic_name']!r} is in store {row['store_id']}, "
            "for which table nuncius.stores has no address"
        )
    return str(row["dsn"])


def _ends(stores: Stores, elsewhere: Mapping[str, list[int]]) -> dict[int, int]:
    def ask(dsn: str) -> list[asyncpg.Record]:
        return stores.rows(dsn, procedure("ends_here", 1), elsewhere[dsn])

    with ThreadPoolExecutor(min(8, len(elsewhere)), thread_name_prefix="nuncius-ends") as threads:
        answers = list(threads.map(ask, elsewhere))
    return {row["partition_id"]: row["next"] for rows in answers for row in rows if row["next"] is not None}
