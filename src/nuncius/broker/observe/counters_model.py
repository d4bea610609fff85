"""Data of counters, and the facts that doors report about themselves."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

EDGES = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
)  # seconds
ASK_FOR_ROWS = (
    "fetch",
    "put and take",
    "take many",
    "lease",
)  # batches whose number of rows is the limit they asked for


class ObservedDoor(Protocol):
    """A door, as seen by counters and consoles."""

    @property
    def is_open(self) -> bool:
        """Return True if it listens or has connections: STOMP comes over WebSocket, too."""

    @property
    def connections(self) -> int: ...

    def list_connections(self) -> "Sequence[ConnectionFacts]": ...

    def disconnect(self, connection_id: str) -> bool:
        """End a connection after its requests are answered. Return False if there is no such connection."""


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    id: str
    door: str
    peer: str
    """Where it comes from."""
    speaks: str
    """Which of the door's dialects."""
    identity: str
    """The name by which it introduced itself; empty if it did not."""
    mode: str
    """full or read only"""
    since: float
    """Seconds since 1970, as are the others."""
    last_active: float
    bytes_in: int
    bytes_out: int | None


class Counts(msgspec.Struct, frozen=True):
    """Summary of the load of one process."""

    accepted_bytes: int
    connections: dict[str, int]
    """By door."""
    messages: dict[str, int]
    """By kind."""


@dataclass(frozen=True, slots=True)
class RingState:
    """A node's view of the ring of keys, and the leases between it and other nodes."""

    node: str
    version: int
    places: tuple[tuple[int, str], ...]
    hot_keys: tuple[str, ...]
    """Keys read so often that other nodes hold leases of them."""
    cached_bytes: int
    """Bytes of other nodes' keys that are cached here under leases."""


class Histogram:
    """Histogram of durations."""

    __slots__ = ("buckets", "count", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(EDGES) + 1)
        self.seconds = 0.0
        self.count = 0

    def add(self, seconds: float) -> None:
        self.buckets[bisect_left(EDGES, seconds)] += 1
        self.seconds += seconds
        self.count += 1


def quantile(buckets: Sequence[int], share: float) -> float:
    """Return the quantile of a histogram in seconds, by linear interpolation within its bucket."""
    wanted = share * sum(buckets)
    below = 0
    for n, count in enumerate(buckets):
        if count and below + count >= wanted:
            if n == len(EDGES):
                return EDGES[-1]
            low = EDGES[n - 1] if n else 0.0
            return low + (EDGES[n] - low) * (wanted - below) / count
        below += count
    return 0.0
