"""Rates of counters, from repeated readings."""

from collections import OrderedDict

REMEMBERED = 20_000
SHORTEST = 0.5  # seconds between two readings for a rate


class CounterRates:
    def __init__(self) -> None:
        # By name: count and time of a reading, and the rate since the reading before.
        self._known: OrderedDict[str, tuple[float, float, float | None]] = OrderedDict()

    def of(self, name: str, count: float, now: float) -> float | None:
        """Return the rate per second; None until the counter has been read twice."""
        known = self._known.get(name)
        if known is None:
            self._known[name] = (count, now, None)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            return None
        before, then, rate = known
        if now - then >= SHORTEST:
            # A counter that fell was restarted.
            rate = max(0.0, (count - before) / (now - then))
            self._known[name] = (count, now, rate)
            self._known.move_to_end(name)
        return rate
