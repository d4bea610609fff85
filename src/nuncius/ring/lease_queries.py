"""Find keys that are read often enough for a lease."""

from collections import OrderedDict

from nuncius.ring.lease_clock import Clock

QUERY_COUNT_SECONDS = 5.0
QUERY_COUNT_THRESHOLD = 3
MAX_KEYS = 100_000


class Queries:
    """Times of the last two queries of each key. If there are too many keys, the least recently read are
    forgotten."""

    def __init__(self, clock: Clock, most: int = MAX_KEYS) -> None:
        self._clock = clock
        self._most = most
        self._sent: OrderedDict[str, tuple[float, ...]] = OrderedDict()

    def wants_lease(self, key: str) -> bool:
        """Count a query. Return True if it is at least the third within the window."""
        now = self._clock.now()
        before = self._sent.pop(key, ())
        if not before and len(self._sent) >= self._most:
            self._sent.popitem(last=False)
        recent = tuple(moment for moment in before if now - moment < QUERY_COUNT_SECONDS)
        self._sent[key] = (*recent, now)[-(QUERY_COUNT_THRESHOLD - 1) :]
        return len(recent) >= QUERY_COUNT_THRESHOLD - 1

    def __len__(self) -> int:
        return len(self._sent)
