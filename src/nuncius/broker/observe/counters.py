"""Counters of a node: messages by door and kind, messages by queue, and how long its batches take.

All counters are updated once a batch, in plain dictionaries, where the batch's results are at hand anyway;
no benchmark shows the cost. Totals only go up. Rates and percentiles are of the last minute: a sample of the
totals is kept every second.

The door of a message is known by its caller: it is named like the package of the caller's class, unless the
caller names it. Calls without a caller count under http.
"""

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from nuncius.broker.background.duties import Duties
from nuncius.broker.observe.counters_model import EDGES, Histogram, ObservedDoor, RingState
from nuncius.store.calls.fetching import Entries
from nuncius.store.calls.moving import MOVED
from nuncius.store.calls.publishing import Placed
from nuncius.store.calls.putting import Stored
from nuncius.store.calls.sequences import FoundEntry, Turn
from nuncius.store.store import Store

PUBLISHED, PUT, TAKEN, DELIVERED, ACKED, READ = "published", "put", "taken", "delivered", "acked", "read"
KINDS = (PUBLISHED, PUT, TAKEN, DELIVERED, ACKED, READ)

SAMPLE_SECONDS = 1.0
WINDOW = 60  # samples
MOST_QUEUES = 10_000
OTHERS = "http"
RING = "tribbler"
"""The door that changes keys."""


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    totals: dict[tuple[str, str], int]
    queues: dict[int, tuple[int, int]]
    buckets: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of the last minute, or since the node started if that is shorter."""

    seconds: float
    messages: dict[tuple[str, str], float]
    """Messages per second, by door and kind."""
    queues: dict[int, tuple[float, float]]
    """Puts and takes per second, by queue; only queues with traffic."""
    buckets: dict[str, list[int]]
    """Histogram of batch times between the `EDGES`, by procedure; only procedures with batches."""


class Counters:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.started_at = time.time()
        self.pid = os.getpid()
        self.doors: dict[str, ObservedDoor] = {}
        self.ring: Callable[[], RingState] | None = None
        """Set by the door of the ring of keys."""
        self.procedures: dict[str, Histogram] = {}
        self.queues: dict[int, tuple[int, int]] = {}
        """Puts and takes by queue, of the first `MOST_QUEUES` queues with traffic."""
        self._counts: dict[str, defaultdict[type | str, int]] = {kind: defaultdict(int) for kind in KINDS}
        self._door_of: dict[type, str] = {}
        self._samples: deque[_Sample] = deque(maxlen=WINDOW + 1)
        self._samples.append(self._sample())
        self._observers: dict[str, Callable[[Sequence[Any], Sequence[Any]], None]] = {
            "publish": self._published,
            "publish in turn": self._published_in_turn,
            "put and take": self._exchanged,
            "take many": self._exchanged,
            "lease": self._leased,
            "get": self._got,
            "advance": self._advanced,
            "fetch": self._fetched,
            "confirm": self._confirmed,
            "acknowledge": self._acknowledged,
            "settle": self._settled,
            "keys write": self._posted,
        }

    def attach(self, store: Store) -> None:
        """Observe a store. Call this before its combiners are made: they take the observer over."""
        store.observe = self.observe

    def take_on(self, duties: Duties) -> None:
        duties.add("counters", SAMPLE_SECONDS, self.sample)

    # Counting

    def observe(self, name: str, seconds: float, calls: Sequence[Any], results: Sequence[Any]) -> None:
        """Count a batch that a combiner has carried out."""
        histogram = self.procedures.get(name)
        if histogram is None:
            histogram = self.procedures[name] = Histogram()
        histogram.add(seconds)
        count = self._observers.get(name)
        if count is not None:
            count(calls, results)

    def delivered(self, caller: Hashable, entries: int) -> None:
        """Count entries delivered to a subscriber."""
        self._counts[DELIVERED][_said_by(caller)] += entries

    def settled(self, messages: int) -> None:
        """Count acknowledged messages of timed leases."""
        self._counts[ACKED][OTHERS] += messages

    def _published(self, calls: Sequence[Any], results: Sequence[Any]) -> None:
        # The hottest path: neighbours mostly have one kind of caller, so sum them before the look-up.
        counts = self._counts[PUBLISHED]
        kind, rows = type(None), 0
        for call, result in zip(calls, results, strict=True):
            if type(result) is Placed:
                if type(call.caller) is not kind:
                    counts[kind] += rows
                    kind, rows = type(call.caller), 0
                rows += call.rows
        counts[kind] += rows

    def _published_in_turn(self, calls: Sequence[Any], results: Sequence[Any]) -> None:
        counts = self._counts[PUBLISHED]
        for call, result in zip(calls, results, strict=True):
            if type(result) is Turn and result.stored:
                counts[type(call.caller)] += 1

    def _exchanged(self, calls: Sequence[Any], results: Sequence[Any], kind: str = TAKEN) -> None:
        put, taken = self._counts[PUT], self._counts[kind]
        for call, result in zip(calls, results, strict=True):
            if type(result) is Stored:
                put[type(call.caller)] += call.rows
                self._touch(call.queue_id, call.rows, 0)
            elif result and type(result) is list:
                taken[type(call.caller)] += len(result)
                self._touch(call.queue_id, 0, len(result))

    def _leased(self, calls: Sequence[Any], results: Sequence[Any]) -> None:
        self._exchanged(calls, results, DELIVERED)

    def _got(self, calls: Sequence[Any], results: Sequence[Any]) -> None:
        counts = self._counts[DELIVERED]
        for call, result in zip(calls, results, strict=True):
            if type(result) is FoundEntry and result.body is not None:
                counts[type(call.caller)] += 1

    def _advanced(self, calls: Sequence[Any], results: Sequence[Any]) -> None:
        del calls
        self._counts[DELIVERED][int] += sum(result == MOVED for result in results)

    def _fetched(self, calls: Sequence[Any], results: Sequence[Any]) -> None:
        counts = self._counts[READ]
        for call, result in zip(calls, results, strict=True):
            if type(result) is Entries:
                counts[type(call.caller)] += len(result.bodies)

    def _confirmed(self, calls: Sequence[Any], results: Sequence[Any]) -> None:
        counts = self._counts[ACKED]
        for call, result in zip(calls, results, strict=True):
            if result == MOVED:
                counts[_said_by(call.caller)] += 1

    def _acknowledged(self, calls: Sequence[Any], results: Sequence[Any]) -> None:
        del results
        counts = self._counts[ACKED]
        for call in calls:
            said = call.said
            all_said = said.confirmed if said.ledger is None else said.entries
            counts[type(call.caller)] += len(all_said) - len(said.failed)

    def _settled(self, calls: Sequence[Any], results: Sequence[Any]) -> None:
        del results
        counts = self._counts[ACKED]
        for call in calls:
            counts[type(call.caller)] += call.rows

    def _posted(self, calls: Sequence[Any], results: Sequence[Any]) -> None:
        """Count tribbles as published entries. One sent again counts again: its answer is the same."""
        posts = sum(
            call.mention is not None and type(result) is int
            for call, result in zip(calls, results, strict=True)
        )
        self._counts[PUBLISHED][RING] += posts

    def _touch(self, queue_id: int, put: int, taken: int) -> None:
        before = self.queues.get(queue_id)
        if before is not None:
            self.queues[queue_id] = (before[0] + put, before[1] + taken)
        elif len(self.queues) < MOST_QUEUES:
            self.queues[queue_id] = (put, taken)

    # Reading

    @property
    def totals(self) -> dict[tuple[str, str], int]:
        """Return the messages since the start, by door and kind."""
        totals: defaultdict[tuple[str, str], int] = defaultdict(int)
        for kind, counts in self._counts.items():
            for caller, count in counts.items():
                totals[self.door_of(caller), kind] += count
        return dict(totals)

    def by_kind(self) -> dict[str, int]:
        """Return the messages since the start, by kind."""
        return {kind: sum(counts.values()) for kind, counts in self._counts.items()}

    def door_of(self, caller: type | str) -> str:
        """Return the door of a caller's class. A string is the door's name itself."""
        if isinstance(caller, str):
            return caller
        door = self._door_of.get(caller)
        if door is None:
            package, _, rest = caller.__module__.partition(".doors.")
            door = rest.partition(".")[0] if package == "nuncius" and rest else OTHERS
            door = getattr(caller, "counted_as", door)
            self._door_of[caller] = door
        return door

    @property
    def connections(self) -> dict[str, int]:
        """Return the number of connections, by open door."""
        return {name: door.connections for name, door in self.doors.items() if door.is_open}

    async def sample(self) -> int:
        """Keep a sample of the totals, once a second."""
        self._samples.append(self._sample())
        return 0

    def _sample(self) -> _Sample:
        buckets = {name: each.buckets.copy() for name, each in self.procedures.items()}
        return _Sample(self._clock(), self.totals, dict(self.queues), buckets)

    def rates(self, seconds: float = WINDOW * SAMPLE_SECONDS) -> Rates:
        """Return the rates of the last so many seconds, a minute at most."""
        now = self._sample()
        before = next((each for each in self._samples if now.at - each.at <= seconds), self._samples[-1])
        span = max(now.at - before.at, 1e-9)
        queues = {}
        for queue_id, (put, taken) in now.queues.items():
            put_before, taken_before = before.queues.get(queue_id, (0, 0))
            if put > put_before or taken > taken_before:
                queues[queue_id] = ((put - put_before) / span, (taken - taken_before) / span)
        worked = {}
        nothing = [0] * (len(EDGES) + 1)
        for name, buckets in now.buckets.items():
            recent = [a - b for a, b in zip(buckets, before.buckets.get(name, nothing), strict=True)]
            if any(recent):
                worked[name] = recent
        return Rates(
            span,
            {where: (count - before.totals.get(where, 0)) / span for where, count in now.totals.items()},
            queues,
            worked,
        )


def _said_by(caller: Hashable) -> type | str:
    return getattr(caller, "door", "") or type(caller)
