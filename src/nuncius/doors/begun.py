"""What has begun and does not end: requests that arrive in pieces, and open transactions. It is kept in
memory, so there is a limit to it, for each connection and for all of them together."""

from nuncius.broker.errors import StoreUnavailable
from nuncius.broker.model import Pressure

MAX_INCOMPLETE = 256 << 20  # bytes, over all connections
MUCH_INCOMPLETE = 1 << 20  # who has less is let be even then


class TooMuch(StoreUnavailable):
    """A request is given up before it has arrived."""


class Begun:
    """What one connection has begun."""

    def __init__(self, pressure: Pressure) -> None:
        self._pressure = pressure
        self.size = 0

    def note(self, size: int) -> bool:
        """So many bytes it is now. Answers whether that is too much."""
        self._pressure.incomplete += size - self.size
        self.size = size
        return size > MUCH_INCOMPLETE and self._pressure.incomplete > MAX_INCOMPLETE
