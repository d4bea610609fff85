"""Putting into queues: many calls become one `put_many`."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec

from nuncius.store.combiner.combiner import Call, Detour
from nuncius.store.driver import Connection

PUT = (
    "select codes, skipped, ids from nuncius.put_many"
    "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, false)"
)

SENT_BEFORE, NO_QUEUE, BUSY = -1, -2, -3


class Letter(msgspec.Struct, frozen=True, gc=False):
    """A message as it is put: everything but its queue."""

    body: bytes
    priority: int = 5
    sender: int = 0
    receiver: int = 0
    context: int = 0
    headers: str | None = None


class PutCall(Call):
    """Messages for one queue, stored together."""

    __slots__ = ("count", "letters", "publisher_id", "queue_id")

    def __init__(
        self,
        done: Callable[[Any], None],
        caller: Hashable,
        queue_id: int,
        letters: Sequence[Letter],
        publisher_id: int | None,
        count: int,
        size: int,
    ) -> None:
        super().__init__(done, caller, queue_id, len(letters), size, publisher_id is not None)
        self.queue_id = queue_id
        self.letters = letters
        self.publisher_id = publisher_id
        self.count = count


class Stored(msgspec.Struct, frozen=True, gc=False):
    """The ids of the new messages; `skipped` messages before them had been stored already."""

    ids: Sequence[int]
    skipped: int


class MissingQueues(msgspec.Struct, frozen=True, gc=False):
    """These queues do not exist, so nothing was put."""

    queue_ids: tuple[int, ...]


class _PutRun:
    __slots__ = ("call", "letters")

    def __init__(self, call: PutCall) -> None:
        self.call = call
        self.letters: list[Letter] = []


class Parcel:
    """A batch of calls as arguments of the procedure."""

    def __init__(self, calls: Sequence[PutCall]) -> None:
        self._calls = calls
        self._runs = runs = list[_PutRun]()
        self._places: list[tuple[int, int]] = []  # of each call: its run, and its first index in it
        open_runs: dict[tuple[int, int | None], int] = {}
        for call in calls:
            kind = (call.queue_id, call.publisher_id)
            at = open_runs.get(kind)
            if at is None or (
                call.publisher_id is not None and call.count != runs[at].call.count + len(runs[at].letters)
            ):
                at = open_runs[kind] = len(runs)
                runs.append(_PutRun(call))
            self._places.append((at, len(runs[at].letters)))
            runs[at].letters += call.letters
        self.arguments = _arguments(
            [run.call.queue_id for run in runs],
            [run.call.publisher_id for run in runs],
            [run.call.count for run in runs],
            [len(run.letters) for run in runs],
            [letter for run in runs for letter in run.letters],
            atomic=False,
        )

    def results(
        self, codes: Sequence[int], skipped: Sequence[int], ids: Sequence[int] | None
    ) -> list[Stored | MissingQueues | Detour]:
        """Convert the procedure's answer to a result for each call."""
        ids = ids or []
        firsts = []  # index of the first id of each run
        end = 0
        for run, code, skip in zip(self._runs, codes, skipped, strict=True):
            firsts.append(end - skip)
            if code == 0:
                end += len(run.letters) - skip

        results: list[Stored | MissingQueues | Detour] = []
        for call, (at, start) in zip(self._calls, self._places, strict=True):
            if codes[at] == BUSY:
                results.append(Detour.BUSY)
            elif codes[at] == NO_QUEUE:
                results.append(MissingQueues((call.queue_id,)))
            elif codes[at] == SENT_BEFORE:
                results.append(Stored((), call.rows))
            else:
                known = min(max(skipped[at] - start, 0), call.rows)
                first = firsts[at] + start
                results.append(Stored(ids[first + known : first + call.rows], known))
        return results


async def put(connection: Connection, calls: Sequence[PutCall], wait: bool) -> list[Any]:
    """Carry out a batch. Results: Stored, MissingQueues, or a Detour."""
    parcel = Parcel(calls)
    row = await connection.fetchrow(PUT, *parcel.arguments, wait)
    assert row is not None
    return parcel.results(*row)


async def put_into_all(
    connection: Connection,
    queue_ids: Sequence[int],
    letter: Letter,
    publisher_id: int | None,
    count: int,
) -> Stored | MissingQueues:
    """Put one message into each of the queues, or into none. The first queue keeps the publisher's count."""
    copies = len(queue_ids)
    arguments = _arguments(
        queue_ids,
        [publisher_id] + [None] * (copies - 1),
        [count] + [0] * (copies - 1),
        [1] * copies,
        [letter] * copies,
        atomic=True,
    )
    row = await connection.fetchrow(PUT, *arguments, True)
    assert row is not None
    codes, _, ids = row
    if ids is not None:
        return Stored(ids, 0)
    missing = tuple(q for q, code in zip(queue_ids, codes, strict=True) if code == NO_QUEUE)
    return MissingQueues(missing) if missing else Stored((), 1)


def _arguments(
    queue_ids: Sequence[int],
    publishers: Sequence[int | None],
    counts: Sequence[int],
    sizes: Sequence[int],
    letters: Sequence[Letter],
    *,
    atomic: bool,
) -> tuple[Any, ...]:
    """Return the arguments of PUT, all but the last."""
    identified = any(publisher is not None for publisher in publishers)
    return (
        queue_ids,
        publishers if identified else None,
        counts if identified else None,
        sizes,
        _column([letter.sender for letter in letters]),
        _column([letter.receiver for letter in letters]),
        _column([letter.context for letter in letters]),
        [letter.priority for letter in letters],
        _column([letter.headers for letter in letters]),
        [letter.body for letter in letters],
        atomic,
    )


def _column(values: list[Any]) -> list[Any] | None:
    """Return a column, or None if it is empty: most messages have no receiver, no context, no headers."""
    return values if any(values) else None
