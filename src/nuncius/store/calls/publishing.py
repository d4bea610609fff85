"""Publishing: many calls become one `publish_many`."""

import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec

from nuncius.store.combiner.combiner import Call, Detour
from nuncius.store.driver import Connection
from nuncius.store.errors import CallFailed

SQL = (
    "select bases, skipped from nuncius.publish_many"
    "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, false)"
)

NO_TOPIC, BUSY, OTHER_LAYOUT, ELSEWHERE = -2, -3, -4, -5


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key, as nuncius.partition_of in SQL does."""
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return 1 + int.from_bytes(digest[:4], "big") % partitions


class PublishCall(Call):
    """Entries for one topic, stored together. Their partitions are chosen before, and again if the layout
    turns out to be outdated. `partitions` has an item per entry, or is one for all; `layout` is the number
    of partitions that the choice was based on."""

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

    def __init__(
        self,
        done: Callable[[Any], None],
        caller: Hashable,
        topic_name: str,
        bodies: Sequence[bytes],
        keys: Sequence[str | None] | None,
        headers: Sequence[str | None] | None,
        chosen: int | None,
        sticky: str | None,
        publisher_id: int | None,
        count: int,
        size: int,
    ) -> None:
        # Made for every message: the parent's fields are set here rather than by a second call.
        self.done = done
        self.caller = caller
        self.key = topic_name
        self.rows = len(bodies)
        self.size = size
        self.repeatable = publisher_id is not None
        self.topic_name = topic_name
        self.bodies = bodies
        self.keys = keys
        self.headers = headers
        self.chosen = chosen  # the caller's own choice of a partition
        self.sticky = sticky  # the text that decides for entries without a key
        self.publisher_id = publisher_id
        self.count = count

    def place(self, topic_id: int, layout: int, turn: Callable[[], int]) -> None:
        """Choose partitions by the topic's layout as this node knows it; PostgreSQL checks the layout.
        Entries that may go to any partition take that of the `turn`."""
        self.topic_id = topic_id
        self.layout = layout
        if self.chosen is not None:
            self.partitions, self.layout = self.chosen, None
        elif layout == 1:
            self.partitions = 1
        else:
            default = self.default_partition(layout, turn)
            if self.keys is None:
                self.partitions = default
            else:
                self.partitions = [default if key is None else partition_of(key, layout) for key in self.keys]

    def default_partition(self, layout: int, turn: Callable[[], int]) -> int:
        """Return the partition, of so many, for entries without a key."""
        return 1 + turn() % layout if self.sticky is None else partition_of(self.sticky, layout)


class Placed(msgspec.Struct, frozen=True, gc=False):
    """The places of a call's entries: offsets from `offset` on in one partition, without the first `skipped`
    entries, which were stored before; or, if they went to several partitions, (partition, offset) per entry,
    with offset -1 for those stored before."""

    partition: int
    offset: int
    skipped: int
    scattered: list[tuple[int, int]] | None = None


class _PartitionRun:
    """The entries of a send for one partition."""

    __slots__ = ("base", "bodies", "headers", "keys", "numbers", "partition", "skipped")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.bodies: list[bytes] = []
        self.keys: list[str | None] = []
        self.headers: list[str | None] = []
        self.numbers: list[int] = []
        self.base = self.skipped = 0


# The run of an entry, and the index in it: one place for a call to one partition, else a place per entry.
_Places = list[tuple[_PartitionRun, int]]


class _Send:
    """Calls of one topic and one publisher, with consecutive counts."""

    __slots__ = ("call", "length", "runs")

    def __init__(self, call: PublishCall) -> None:
        self.call = call
        self.length = 0
        self.runs: dict[int, _PartitionRun] = {}

    def add(self, call: PublishCall, keyed: bool, headed: bool) -> _Places:
        partitions = call.partitions
        if type(partitions) is int:
            run = self.runs.get(partitions)
            if run is None:
                run = self.runs[partitions] = _PartitionRun(partitions)
            places = [(run, len(run.bodies))]
            run.bodies += call.bodies
            if keyed:
                run.keys += call.keys or (None,) * call.rows
            if headed:
                run.headers += call.headers or (None,) * call.rows
            if call.layout != 1:
                run.numbers += range(self.length, self.length + call.rows)
        else:
            places = []
            for i, partition in enumerate(partitions):  # type: ignore[arg-type]
                run = self.runs.setdefault(partition, _PartitionRun(partition))
                places.append((run, len(run.bodies)))
                run.bodies.append(call.bodies[i])
                run.numbers.append(self.length + i)
                if keyed:
                    run.keys.append(call.keys[i] if call.keys else None)
                if headed:
                    run.headers.append(call.headers[i] if call.headers else None)
        self.length += call.rows
        return places


class Shipment:
    """A batch of calls as arguments of the procedure."""

    def __init__(self, calls: Sequence[PublishCall]) -> None:
        self.calls = calls
        keyed = any(call.keys for call in calls)
        headed = any(call.headers for call in calls)
        sends: list[_Send] = []
        unfinished: dict[tuple[int, int | None, int | None, int | None], _Send] = {}
        self._places: list[_Places] = []
        self._scattered = False
        for call in calls:
            publisher = call.publisher_id
            # A partition that a caller chose may not exist: that must not fail the entries of other callers.
            kind = (call.topic_id, call.layout, publisher, call.chosen)
            send = unfinished.get(kind)
            if send is None or (publisher is not None and call.count != send.call.count + send.length):
                send = unfinished[kind] = _Send(call)
                sends.append(send)
            self._places.append(send.add(call, keyed, headed))
            self._scattered = self._scattered or type(call.partitions) is not int

        numbered = [(n, run) for n, send in enumerate(sends, 1) for run in send.runs.values()]
        self._runs = runs = [run for _, run in numbered]
        identified = any(send.call.publisher_id is not None for send in sends)
        several = len(runs) > len(sends)
        self._arguments = (
            [send.call.topic_id for send in sends],
            [send.call.layout for send in sends],
            [send.call.publisher_id for send in sends] if identified else None,
            [send.call.count for send in sends] if identified else None,
            [n for n, _ in numbered],
            [run.partition for run in runs],
            [len(run.bodies) for run in runs],
            _flat([run.numbers or range(len(run.bodies)) for run in runs]) if several else None,
            _flat([run.keys for run in runs]) if keyed else None,
            _flat([run.headers for run in runs]) if headed else None,
            _flat([run.bodies for run in runs]),
        )

    async def send(self, connection: Connection, wait: bool) -> list[Any]:
        """Carry out the batch. Results: Placed, CallFailed, or a Detour for calls to try again elsewhere."""
        row = await connection.fetchrow(SQL, *self._arguments, wait)
        assert row is not None
        new = True
        for run, base, skipped in zip(self._runs, row["bases"], row["skipped"], strict=True):
            run.base, run.skipped = base, skipped
            new = new and base >= 0 and skipped == 0
        if new and not self._scattered:
            return [Placed(run.partition, run.base + start, 0) for ((run, start),) in self._places]
        return [_outcome(call, spots) for call, spots in zip(self.calls, self._places, strict=True)]


async def publish(connection: Connection, calls: Sequence[PublishCall], wait: bool) -> list[Any]:
    """Carry out a batch."""
    return await Shipment(calls).send(connection, wait)


def _flat(parts: list[Any]) -> list[Any]:
    return parts[0] if len(parts) == 1 else [item for part in parts for item in part]


def _outcome(call: PublishCall, places: _Places) -> Placed | Detour | CallFailed:
    run, start = places[0]
    if run.base >= 0 and run.skipped == 0 and type(call.partitions) is int:
        return Placed(run.partition, run.base + start, 0)
    if run.base == BUSY:
        return Detour.BUSY
    if run.base == OTHER_LAYOUT and call.layout is None:
        return CallFailed(f"topic {call.key!r} has no partition {call.partitions}")
    if run.base == ELSEWHERE and call.chosen is not None:
        return CallFailed(f"partition {call.partitions} of topic {call.key!r} is in another store")
    if run.base in (NO_TOPIC, OTHER_LAYOUT, ELSEWHERE):
        return Detour.STALE
    if type(call.partitions) is int:
        if run.base < 0:
            return Placed(run.partition, -1, call.rows)
        skipped = min(max(run.skipped - start, 0), call.rows)
        return Placed(run.partition, run.base + max(start - run.skipped, 0), skipped)
    spots = [
        (run.partition, run.base + at - run.skipped if run.base >= 0 and run.skipped <= at else -1)
        for run, at in places
    ]
    return Placed(0, -1, sum(offset < 0 for _, offset in spots), spots)
