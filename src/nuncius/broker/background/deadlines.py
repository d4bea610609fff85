"""Check the connections of a listener about once a second.

A client has a few seconds for its greeting, and may not stop in the middle of a request for long. Between
requests it may be silent for ever.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

from nuncius.broker.limits import Limits


class Watched(Protocol):
    """A connection whose deadlines are checked about once a second."""

    def look(self, now: float) -> None:
        """End the connection if it has run out of time."""


class DeadlineWatch:
    """Timer that checks the connections of a door, as long as there are some."""

    def __init__(self, limits: Limits, connections: Callable[[], Collection[Watched]]) -> None:
        self._connections = connections
        self._period = min(1.0, limits.greeting_seconds / 4, limits.progress_seconds / 4)
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start the timer if it does not run."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._period, self._look, loop)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for connection in list(self._connections()):
            connection.look(now)
        if self._connections():
            self.begin()
