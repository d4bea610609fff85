"""Counters of a node: messages by door and kind, messages by queue, and how long its batches take.

All counters are updated once a batch, in plain dictionaries, where the batch's results are at hand anyway;
no benchmark shows the cost. Totals only go up. Rates and percentiles are of the last minute: a sample of the
totals is kept every second.

A message counts under the door of its caller: a listener, `link` if another node has forwarded it, or `node`.
"""

import os
import time
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nuncius.broker.background.duties import Duties
from nuncius.broker.caller import NODE, Caller
from nuncius.broker.observe.counters_model import EDGES, Histogram, ObservedDoor, RingState
from nuncius.store.calls.fetching import FetchedEntries
from nuncius.store.calls.moving import MOVED
from nuncius.store.calls.publishing import Placed
from nuncius.store.calls.putting import Stored
from nuncius.store.calls.sequences import FoundEntry, Turn
from nuncius.store.combiner.combiner import Observe
from nuncius.store.store import Store

PUBLISHED, PUT, TAKEN, DELIVERED, ACKED, READ = "published", "put", "taken", "delivered", "acked", "read"
KINDS = (PUBLISHED, PUT, TAKEN, DELIVERED, ACKED, READ)

SAMPLE_SECONDS = 1.0
WINDOW = 60  # samples
MOST_QUEUES = 10_000
RING = "tribbler"
"""The door that changes keys."""


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    totals: dict[tuple[str, str], int]
    queues: dict[int, tuple[int, int]]
    buckets: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class RecentRates:
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
        """Durations of batches, by combiner; only combiners with batches."""
        self.queues: dict[int, tuple[int, int]] = {}
        """Puts and takes by queue, of the first `MOST_QUEUES` queues with traffic."""
        self._counts: dict[str, defaultdict[str, int]] = {kind: defaultdict(int) for kind in KINDS}
        self._samples: deque[_Sample] = deque(maxlen=WINDOW + 1)
        self._samples.append(self._sample())
        self._counting: dict[str, Callable[[Sequence[Any], Sequence[Any]], None]] = {
            "publish": self._published,
            "publish in turn": self._published_in_turn,
            "put and take": partial(self._exchanged, TAKEN),
            "take many": partial(self._exchanged, TAKEN),
            "lease": partial(self._exchanged, DELIVERED),
            "get": self._got,
            "advance": partial(self._moved, DELIVERED),
            "fetch": self._fetched,
            "confirm": partial(self._moved, ACKED),
            "acknowledge": self._acknowledged,
            "settle": self._settled,
            "keys write": self._posted,
        }

    def attach(self, store: Store) -> None:
        """Observe a store. Call this before its combiners are made: they take the observers over."""
        store.observer = self.observer

    def take_on(self, duties: Duties) -> None:
        duties.add("counters", SAMPLE_SECONDS, self.sample)

    # Counting

    def observer(self, name: str) -> Observe:
        """Return the function that a combiner calls after each batch."""
        count = self._counting.get(name, _ignore)

        def observe(seconds: float, calls: Sequence[Any], results: Sequence[Any]) -> None:
            count(calls, results)
            histogram = self.procedures.get(name)
            if histogram is None:
                histogram = self.procedures[name] = Histogram()
            histogram.buckets[bisect_left(EDGES, seconds)] += 1
            histogram.seconds += seconds

        return observe

    def count(self, kind: str, caller: Caller, messages: int) -> None:
        """Count messages that no combiner carries."""
        self._counts[kind][caller.door] += messages

    def _published(self, calls: Sequence[Any], results: Sequence[Any]) -> None:
        # The hottest path: neighbours mostly have one door, so sum them before the look-up.
        counts = self._counts[PUBLISHED]
        door, rows = NODE.door, 0
        for call, result in zip(calls, results, strict=True):
            if type(result) is Placed:
                if call.caller.door is not door:
                    if rows:
                        counts[door] += rows
                    door, rows = call.caller.door, 0
                rows += call.rows
        if rows:
            counts[door] += rows

    def _published_in_turn(self, calls: Sequence[Any], results: Sequence[Any]) -> None:
        counts = self._counts[PUBLISHED]
        for call, result in zip(calls, results, strict=True):
            if type(result) is Turn and result.stored:
                counts[call.caller.door] += 1

    def _exchanged(self, kind: str, calls: Sequence[Any], results: Sequence[Any]) -> None:
        put, taken = self._counts[PUT], self._counts[kind]
        for call, result in zip(calls, results, strict=True):
            if type(result) is Stored:
                put[call.caller.door] += call.rows
                self._touch(call.queue_id, call.rows, 0)
            elif result and type(result) is list:
                taken[call.caller.door] += len(result)
                self._touch(call.queue_id, 0, len(result))

    def _got(self, calls: Sequence[Any], results: Sequence[Any]) -> None:
        counts = self._counts[DELIVERED]
        for call, result in zip(calls, results, strict=True):
            if type(result) is FoundEntry and result.body is not None:
                counts[call.caller.door] += 1

    def _fetched(self, calls: Sequence[Any], results: Sequence[Any]) -> None:
        counts = self._counts[READ]
        for call, result in zip(calls, results, strict=True):
            if type(result) is FetchedEntries:
                counts[call.caller.door] += len(result.bodies)

    def _moved(self, kind: str, calls: Sequence[Any], results: Sequence[Any]) -> None:
        counts = self._counts[kind]
        for call, result in zip(calls, results, strict=True):
            if result == MOVED:
                counts[call.caller.door] += 1

    def _acknowledged(self, calls: Sequence[Any], _: Sequence[Any]) -> None:
        counts = self._counts[ACKED]
        for call in calls:
            said = call.said
            all_said = said.confirmed if said.ledger is None else said.entries
            counts[call.caller.door] += len(all_said) - len(said.failed)

    def _settled(self, calls: Sequence[Any], _: Sequence[Any]) -> None:
        counts = self._counts[ACKED]
        for call in calls:
            counts[call.caller.door] += call.rows

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
        return {(door, kind): n for kind, counts in self._counts.items() for door, n in counts.items()}

    def by_kind(self) -> dict[str, int]:
        """Return the messages since the start, by kind."""
        return {kind: sum(counts.values()) for kind, counts in self._counts.items()}

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

    def rates(self, seconds: float = WINDOW * SAMPLE_SECONDS) -> RecentRates:
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
        return RecentRates(
            span,
            {where: (count - before.totals.get(where, 0)) / span for where, count in now.totals.items()},
            queues,
            worked,
        )


def _ignore(calls: Sequence[Any], results: Sequence[Any]) -> None:
    """Do nothing: these batches hold no messages."""
