"""Putting the rows of one transaction into queues."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from nuncius.pipeline.errors import PipelineError
from nuncius.pipeline.sink.options import WriteTarget
from nuncius.pipeline.sink.publisher import TaskPublisher
from nuncius.pipeline.sink.rows import BadRow, Rows, Sorted
from nuncius.store.calls.putting import NO_QUEUE
from nuncius.store.driver import Connection
from nuncius.store.queries import procedure, query

LOCK = 78002
RUNS_A_CALL = 64
_FIND = query("sink", "queues")
_PUT = query("sink", "put")


class QueueWriter:
    def __init__(self, target: WriteTarget) -> None:
        self._target = target
        self._clients: dict[str, int] = {}

    async def write(
        self, connection: Connection, rows: Rows, publisher: TaskPublisher, *, last: bool
    ) -> None:
        """Put all rows or none."""
        ready = rows.sort(None)
        priorities = ready.column("priority", self._target.priority)
        if priorities and not 1 <= min(priorities) <= max(priorities) <= 10:
            raise BadRow("there is a row whose priority is not between 1 and 10")
        receivers = await self._receivers(connection, ready)
        queues = await _look_up(connection, rows.names)
        columns = (receivers, priorities, ready.headers(), ready.values())
        async with connection.transaction():
            known = await _put(connection, rows, queues, ready, columns, publisher, last=last)
        publisher.advance(dict(zip(rows.names, rows.lengths(), strict=True)), known)

    async def _receivers(self, connection: Connection, ready: Sorted) -> list[int]:
        names: list[str | None] = ready.column("receiver", self._target.receiver)
        unknown = {name for name in names if name is not None} - self._clients.keys()
        if unknown:
            found = await connection.fetch(procedure("find_clients", 2), None, sorted(unknown))
            self._clients |= {row["client_name"]: row["client_id"] for row in found}
            missing = sorted(unknown - self._clients.keys())
            if missing:
                raise PipelineError(
                    f"there is no client {missing[0]!r}: a receiver has connected under its name before"
                )
        return [0 if name is None else self._clients[name] for name in names]


async def _look_up(connection: Connection, names: Sequence[str]) -> list[int]:
    found = {row["queue_name"]: row for row in await connection.fetch(_FIND, list(names))}
    for name in names:
        if name not in found:
            raise PipelineError(
                f"there is no queue {name!r}: make it with: nuncius queue create {shlex.quote(name)}"
            )
        if found[name]["store_id"] != 1:
            raise PipelineError(
                f"queue {name!r} lives in store {found[name]['store_id']}, "
                "and this sink writes to one store only"
            )
    return [found[name]["queue_id"] for name in names]


async def _put(
    connection: Connection,
    rows: Rows,
    queues: Sequence[int],
    ready: Sorted,
    columns: tuple[list[int], list[int], list[str | None] | None, list[bytes]],
    publisher: TaskPublisher,
    *,
    last: bool,
) -> int:
    """Put rows within the caller's transaction. Return the number of rows that were stored before."""
    await connection.execute(procedure("take_locks", 4), LOCK, queues, queues, True)
    receivers, priorities, headers, values = columns
    known = 0
    for first in range(0, len(ready.runs), RUNS_A_CALL):
        runs = ready.runs[first : first + RUNS_A_CALL]
        start, end = runs[0].start, runs[-1].end
        answer = await connection.fetchrow(
            _PUT,
            [queues[run.target] for run in runs],
            [publisher.publisher_id] * len(runs),
            [publisher.count(rows.names[run.target]) for run in runs],
            [run.end - run.start for run in runs],
            receivers[start:end],
            priorities[start:end],
            headers and headers[start:end],
            values[start:end],
        )
        assert answer is not None
        for run, code, skipped in zip(runs, answer["codes"], answer["skipped"], strict=True):
            name = rows.names[run.target]
            if code == NO_QUEUE:
                raise PipelineError(f"queue {name!r} was deleted while it was written to")
            await publisher.check(connection, "queue", name, run.end - run.start, skipped, last=last)
            known += skipped
    return known
