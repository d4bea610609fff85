"""Order puts that carry a publisher's count.

A publisher's counts must be stored in their order. Puts into one queue share the combiner's transactions and
stay in order there. A put into several queues is a separate transaction: it starts when the puts before it
are stored, and the puts behind it start when it is stored.
"""

from collections import deque
from collections.abc import Callable


class Turns:
    def __init__(self) -> None:
        self._line: deque[tuple[Callable[[], None], bool]] = deque()
        self._inside = 0
        self._alone = False

    def enter(self, go: Callable[[], None], *, alone: bool) -> None:
        """Call `go` in its turn, at once if possible. The order of entering is kept."""
        self._line.append((go, alone))
        self._admit()

    def leave(self) -> None:
        """End a turn. Call this once for each `go` that was called."""
        self._inside -= 1
        if not self._inside:
            self._alone = False
        self._admit()

    def _admit(self) -> None:
        while self._line and not self._alone:
            go, alone = self._line[0]
            if alone and self._inside:
                return
            self._line.popleft()
            self._inside += 1
            self._alone = alone
            go()
