"""Which keys are asked for often enough to be worth a lease."""

from collections import OrderedDict

from nuncius.ring.lease_clock import Clock

QUERY_COUNT_SECONDS = 5.0
QUERY_COUNT_THRESHOLD = 3
MAX_KEYS = 100_000


class Queries:
    """Remembers, for each key, when the last two queries were sent; keys not asked for lately are forgotten
    when there are too many."""

    def __init__(self, clock: Clock, most: int = MAX_KEYS) -> None:
        self._clock = clock
        self._most = most
        self._sent: OrderedDict[str, tuple[float, ...]] = OrderedDict()

    def wants_lease(self, key: str) -> bool:
        """Counts a query, and says whether it is at least the third within the window."""
        now = self._clock.now()
        before = self._sent.pop(key, ())
        if not before and len(self._sent) >= self._most:
            self._sent.popitem(last=False)
        recent = tuple(moment for moment in before if now - moment < QUERY_COUNT_SECONDS)
        self._sent[key] = (*recent, now)[-(QUERY_COUNT_THRESHOLD - 1) :]
        return len(recent) >= QUERY_COUNT_THRESHOLD - 1

    def __len__(self) -> int:
        return len(self._sent)
