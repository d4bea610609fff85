"""How fast counts go up, from looking at them now and then."""

from collections import OrderedDict

REMEMBERED = 20_000
SHORTEST = 0.5  # seconds between two looks that make a rate


class Rates:
    def __init__(self) -> None:
        # What a count was at the last two looks, and what that made a second.
        self._known: OrderedDict[str, tuple[float, float, float | None]] = OrderedDict()

    def of(self, name: str, count: float, now: float) -> float | None:
        """A second; None until it has been seen twice."""
        known = self._known.get(name)
        if known is None:
            self._known[name] = (count, now, None)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            return None
        before, then, rate = known
        if now - then >= SHORTEST:
            # A count that fell began anew.
            rate = max(0.0, (count - before) / (now - then))
            self._known[name] = (count, now, rate)
            self._known.move_to_end(name)
        return rate
