"""Publishing: many calls become one `publish_many`."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from nuncius.store.combiner import Call, Detour
from nuncius.store.errors import CallFailed

SQL = (
    "select bases, skipped from nuncius.publish_many"
    "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, false)"
)

NO_TOPIC, BUSY, OTHER_LAYOUT = -2, -3, -4


class PublishCall(Call):
    """Entries for one topic, stored together. Where they go is decided (and, when that turns out to be
    outdated, decided again) by whoever knows the topic: `partitions` has an item an entry, or is one for
    all, `layout` is the number of partitions it was decided by."""

    __slots__ = (
        "bodies",
        "chosen",
        "count",
        "headers",
        "keys",
        "layout",
        "partitions",
        "publisher_id",
        "sticky",
        "topic_id",
        "topic_name",
    )
    topic_id: int
    partitions: int | Sequence[int]
    layout: int | None
    chosen: int | None  # the caller's own choice of a partition
    sticky: str | None  # what decides for entries without a key

    def __init__(
        self,
        done: Callable[[Any], None],
        caller: Hashable,
        topic_name: str,
        bodies: Sequence[bytes],
        keys: Sequence[str | None] | None,
        headers: Sequence[str | None] | None,
        publisher_id: int | None,
        count: int,
        size: int,
    ) -> None:
        super().__init__(done, caller, topic_name, len(bodies), size, publisher_id is not None)
        self.topic_name = topic_name
        self.bodies = bodies
        self.keys = keys
        self.headers = headers
        self.publisher_id = publisher_id
        self.count = count


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the entries of a call went: offsets from `offset` on in one partition, the first `skipped` of
    them known from before; or, when they went to several, (partition, offset) an entry, offset -1 for those
    known from before."""

    partition: int
    offset: int
    skipped: int
    scattered: list[tuple[int, int]] | None = None


class _Run:
    __slots__ = ("base", "bodies", "headers", "keys", "numbers", "partition", "skipped")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.bodies: list[bytes] = []
        self.keys: list[str | None] = []
        self.headers: list[str | None] = []
        self.numbers: list[int] = []
        self.base = self.skipped = 0


class _Send:
    __slots__ = ("call", "length", "runs")

    def __init__(self, call: PublishCall) -> None:
        self.call = call
        self.length = 0
        self.runs: dict[int, _Run] = {}

    def add(self, call: PublishCall) -> list[tuple[_Run, int]]:
        """Takes the call's entries in; answers which run, and where in it, each partition's part begins
        (for one partition), or the place of each entry (for several)."""
        if isinstance(call.partitions, int):
            run = self.runs.get(call.partitions)
            if run is None:
                run = self.runs[call.partitions] = _Run(call.partitions)
            start = len(run.bodies)
            rows = call.rows
            run.bodies += call.bodies
            run.keys += call.keys or (None,) * rows
            run.headers += call.headers or (None,) * rows
            run.numbers += range(self.length, self.length + rows)
            self.length += rows
            return [(run, start)]
        places = []
        for i, partition in enumerate(call.partitions):
            run = self.runs.get(partition)
            if run is None:
                run = self.runs[partition] = _Run(partition)
            places.append((run, len(run.bodies)))
            run.bodies.append(call.bodies[i])
            run.keys.append(call.keys[i] if call.keys else None)
            run.headers.append(call.headers[i] if call.headers else None)
            run.numbers.append(self.length + i)
        self.length += call.rows
        return places


async def publish(
    connection: asyncpg.Connection, calls: Sequence[PublishCall], wait: bool
) -> list[Any]:
    """Carries out a batch. Results: Placed, or a Detour for what has to be tried again elsewhere."""
    sends: list[_Send] = []
    open_sends: dict[tuple[int, int | None, int | None], _Send] = {}
    places = []
    for call in calls:
        kind = (call.topic_id, call.layout, call.publisher_id)
        send = open_sends.get(kind)
        if send is None or (
            call.publisher_id is not None and call.count != send.call.count + send.length
        ):
            send = open_sends[kind] = _Send(call)
            sends.append(send)
        places.append(send.add(call))

    runs = [(n, run) for n, send in enumerate(sends, 1) for run in send.runs.values()]
    identified = any(send.call.publisher_id is not None for send in sends)
    keyed = any(call.keys for call in calls)
    headed = any(call.headers for call in calls)
    row = await connection.fetchrow(
        SQL,
        [send.call.topic_id for send in sends],
        [send.call.layout for send in sends],
        [send.call.publisher_id for send in sends] if identified else None,
        [send.call.count for send in sends] if identified else None,
        [n for n, _ in runs],
        [run.partition for _, run in runs],
        [len(run.bodies) for _, run in runs],
        _flat(runs, "numbers") if len(runs) > len(sends) else None,
        _flat(runs, "keys") if keyed else None,
        _flat(runs, "headers") if headed else None,
        _flat(runs, "bodies"),
        wait,
    )
    for (_, run), base, skipped in zip(runs, row["bases"], row["skipped"], strict=True):
        run.base, run.skipped = base, skipped
    return [_outcome(call, place) for call, place in zip(calls, places, strict=True)]


def _flat(runs: list[tuple[int, _Run]], column: str) -> list[Any]:
    if len(runs) == 1:
        return getattr(runs[0][1], column)  # type: ignore[no-any-return]
    return [item for _, run in runs for item in getattr(run, column)]


def _outcome(call: PublishCall, place: list[tuple[_Run, int]]) -> Placed | Detour | CallFailed:
    run, start = place[0]
    if run.base == BUSY:
        return Detour.BUSY
    if run.base == OTHER_LAYOUT and call.layout is None:
        return CallFailed(f"topic {call.key!r} has no partition {call.partitions}")
    if run.base in (NO_TOPIC, OTHER_LAYOUT):
        return Detour.STALE
    if isinstance(call.partitions, int):
        if run.base < 0:
            return Placed(run.partition, -1, call.rows)
        skipped = min(max(run.skipped - start, 0), call.rows)
        return Placed(run.partition, run.base + max(start - run.skipped, 0), skipped)
    spots = [
        (run.partition, run.base + at - run.skipped if 0 <= run.base and run.skipped <= at else -1)
        for run, at in place
    ]
    return Placed(0, -1, sum(offset < 0 for _, offset in spots), spots)
