"""Who may go together, and who has to go alone.

A publisher's counts must be stored in their order. Puts into one queue travel together through the combiner
and stay in order there; a put into several queues is a transaction of its own beside it. So it goes when
those before it are stored, and those behind it go when it is.
"""

from collections import deque
from collections.abc import Callable


class Turns:
    def __init__(self) -> None:
        self._line: deque[tuple[Callable[[], None], bool]] = deque()
        self._inside = 0
        self._alone = False

    def enter(self, go: Callable[[], None], *, alone: bool) -> None:
        """Calls `go` when it is its turn, at once if it can be. Nobody overtakes."""
        self._line.append((go, alone))
        self._admit()

    def leave(self) -> None:
        """Once for everybody who was called."""
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
