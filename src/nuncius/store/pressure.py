"""How much a node has accepted and not yet answered. Above the mark, doors stop reading sockets."""

from collections.abc import Callable


class Pressure:
    def __init__(self, high: int = 256 << 20) -> None:
        self._high = high
        self._low = high // 2
        self._waiting: dict[Callable[[], None], None] = {}
        self.level = 0
        self.incomplete = 0  # bytes of requests that have begun to arrive; nobody knows if they will end

    @property
    def is_high(self) -> bool:
        return self.level > self._high

    def add(self, size: int) -> None:
        self.level += size

    def remove(self, size: int) -> None:
        self.level -= size
        if self._waiting and self.level <= self._low:
            waiting, self._waiting = self._waiting, {}
            for resume in waiting:
                resume()

    def when_relieved(self, resume: Callable[[], None]) -> None:
        """Calls `resume` once, when the level has fallen to half the mark."""
        self._waiting[resume] = None

    def forget(self, resume: Callable[[], None]) -> None:
        self._waiting.pop(resume, None)
