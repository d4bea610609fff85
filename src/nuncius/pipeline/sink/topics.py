"""Publishing the rows of one transaction to topics."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nuncius.pipeline.errors import InvalidOption, PipelineError
from nuncius.pipeline.sink.options import WriteTarget
from nuncius.pipeline.sink.publisher import TaskPublisher
from nuncius.pipeline.sink.rows import BadRow, RowRun, Rows, Sorted
from nuncius.store.calls.publishing import NO_TOPIC, OTHER_LAYOUT
from nuncius.store.driver import Connection
from nuncius.store.queries import procedure, query

LOCK = 78001
# The procedure searches for each run's rows from the beginning, so many runs are divided into several calls.
RUNS_A_CALL = 64
_FIND = procedure("find_topics", 1)
_PUBLISH = query("sink", "publish")


class _Stale(Exception):
    """A topic was deleted or got more partitions since it was looked up: nothing is stored."""


@dataclass(frozen=True, slots=True)
class TopicLayout:
    topic_id: int
    partition_ids: Sequence[int]


class TopicWriter:
    """The topics that a task has looked up."""

    def __init__(self, target: WriteTarget) -> None:
        self._target = target
        self._known: dict[str, TopicLayout] = {}

    async def write(
        self, connection: Connection, rows: Rows, publisher: TaskPublisher, *, last: bool
    ) -> None:
        """Publish all rows or none."""
        while True:
            topics = [await self._topic(connection, name) for name in rows.names]
            layouts = [len(topic.partition_ids) for topic in topics]
            ready = rows.sort(rows.partitions(layouts, publisher.task + publisher.portion))
            for run in ready.runs:
                if not 1 <= run.partition <= layouts[run.target]:
                    await self._refuse_partition(connection, rows.names[run.target], run.partition)
            try:
                async with connection.transaction():
                    known = await _publish(connection, rows, topics, ready, publisher, last=last)
            except _Stale:
                self._known.clear()
                continue
            publisher.advance(dict(zip(rows.names, rows.lengths(), strict=True)), known)
            return

    async def _topic(self, connection: Connection, name: str) -> TopicLayout:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = await self._look_up(connection, name)
        return known

    async def _look_up(self, connection: Connection, name: str) -> TopicLayout:
        _check_name(name)
        row = await connection.fetchrow(_FIND, [name])
        if row is None:
            await connection.execute(procedure("ensure_topic", 2), name, self._target.partitions)
            row = await connection.fetchrow(_FIND, [name])
        if row is None:  # deleted at this moment
            return await self._look_up(connection, name)
        for partition, store in enumerate(row["store_ids"], 1):
            if store != 1:
                raise PipelineError(
                    f"partition {partition} of topic {name!r} lives in store {store}, "
                    "and this sink writes to one store only"
                )
        return TopicLayout(row["topic_id"], row["partition_ids"])

    async def _refuse_partition(self, connection: Connection, name: str, partition: int) -> None:
        """Look the topic up again. Fail if it still does not have that partition."""
        topic = self._known[name] = await self._look_up(connection, name)
        if not 1 <= partition <= len(topic.partition_ids):
            raise BadRow(f"topic {name!r} has {len(topic.partition_ids)} partitions, and none is {partition}")


def _check_name(name: str) -> None:
    if not name or len(name) > 255 or not name.isprintable() or name != name.strip():
        raise InvalidOption(
            f"{shlex.quote(name[:300])} is no name for a topic: it has 1 to 255 characters, "
            "no control characters, and no blank at its ends"
        )


async def _publish(
    connection: Connection,
    rows: Rows,
    topics: Sequence[TopicLayout],
    ready: Sorted,
    publisher: TaskPublisher,
    *,
    last: bool,
) -> int:
    """Publish rows within the caller's transaction. Return the number of rows that were stored before."""
    columns = (ready.values(), ready.keys(), ready.headers())
    calls = list(_calls(ready.runs))
    if len(calls) > 1:  # one call takes its locks in order; several calls must do so together
        locks = [topics[run.target].partition_ids[run.partition - 1] for run in ready.runs]
        await connection.execute(procedure("take_locks", 4), LOCK, locks, locks, True)
    known = 0
    for runs in calls:
        targets = sorted({run.target for run in runs})
        answer = await connection.fetchrow(
            _PUBLISH,
            *_arguments(rows, topics, runs, targets, publisher),
            *_entries(runs, targets, ready, columns),
        )
        assert answer is not None
        if any(base in (NO_TOPIC, OTHER_LAYOUT) for base in answer["bases"]):
            raise _Stale
        for target in targets:
            mine = [n for n, run in enumerate(runs) if run.target == target]
            skipped = sum(answer["skipped"][n] for n in mine)
            length = sum(runs[n].end - runs[n].start for n in mine)
            await publisher.check(connection, "topic", rows.names[target], length, skipped, last=last)
            known += skipped
    return known


def _calls(runs: Sequence[RowRun]) -> Iterator[list[RowRun]]:
    """Divide runs into calls. A topic stays in one call, because its counts increase by one within a call."""
    call: list[RowRun] = []
    for run in runs:
        if len(call) >= RUNS_A_CALL and run.target != call[-1].target:
            yield call
            call = []
        call.append(run)
    yield call


def _arguments(
    rows: Rows,
    topics: Sequence[TopicLayout],
    runs: Sequence[RowRun],
    targets: Sequence[int],
    publisher: TaskPublisher,
) -> tuple[list[int], ...]:
    ordinals = {target: n for n, target in enumerate(targets, 1)}
    return (
        [topics[target].topic_id for target in targets],
        [len(topics[target].partition_ids) for target in targets],
        [publisher.publisher_id] * len(targets),
        [publisher.count(rows.names[target]) for target in targets],
        [ordinals[run.target] for run in runs],
        [run.partition for run in runs],
        [run.end - run.start for run in runs],
    )


def _entries(
    runs: Sequence[RowRun],
    targets: Sequence[int],
    ready: Sorted,
    columns: tuple[list[bytes], list[str | None] | None, list[str | None] | None],
) -> tuple[Any, ...]:
    start, end = runs[0].start, runs[-1].end
    values, keys, headers = columns
    return (
        ready.ranks[start:end] if len(runs) > len(targets) else None,
        keys and keys[start:end],
        headers and headers[start:end],
        values[start:end],
    )
