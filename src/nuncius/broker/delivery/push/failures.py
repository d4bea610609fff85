"""Failed deliveries of a subscription: their attempts, and when each is due again. Bookkeeping without I/O.

PostgreSQL keeps them as well, counts the attempts, and makes an entry a dead letter after the last one
(`fail_many` in `55_failures.sql`).
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from nuncius.broker.delivery.push.outstanding import Place


class Failures:
    def __init__(self, retry_delay: float) -> None:
        self._retry_delay = retry_delay
        self._retries: list[tuple[float, int, int, int]] = []  # when, partition, offset, attempts: a heap
        self._ahead: set[Place] = set()  # failed entries that the position has not passed yet

    def remember(self, rows: Sequence[Any], positions: Mapping[int, int], now: float) -> Sequence[Place]:
        """Schedule the retries of entries that failed before. Those at or after the subscription's position
        need none: they are read again anyway. Return these."""
        for partition, offset, attempts, wait in rows:
            if offset >= positions[partition]:
                self._ahead.add((partition, offset))
            else:
                heappush(self._retries, (now + wait, partition, offset, attempts))
        return list(self._ahead)

    def add(self, places: Iterable[Place], attempts: Sequence[int], now: float) -> None:
        """Schedule the retries of failures that the store has noted. Negative attempts: it has given up."""
        for (partition, offset), count in zip(places, attempts, strict=True):
            if count > 0:
                heappush(self._retries, (now + self._retry_delay, partition, offset, count))

    @property
    def next_at(self) -> float | None:
        """Return when the next retry is due, if there is one."""
        return self._retries[0][0] if self._retries else None

    def take_due(self, now: float) -> tuple[int, int, int] | None:
        """Return partition, offset and attempts of an entry whose retry is due, and forget it."""
        return heappop(self._retries)[1:] if self._retries and self._retries[0][0] <= now else None

    def are_known_of(self, place: Place) -> bool:
        """Return True if this entry failed before, and is read again because the position is before it."""
        return bool(self._ahead) and place in self._ahead

    def settle(self, entries: Iterable[Iterable[Place]]) -> None:
        """Note that the position passes these entries."""
        if self._ahead:
            self._ahead.difference_update(*entries)
