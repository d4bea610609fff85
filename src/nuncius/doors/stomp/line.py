"""The frames of a connection, taken one after the other.

Most are only handed on, and the next is taken at once. Those that change what the ones behind them mean are
waited for, and the others stand in line.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from nuncius.doors.stomp.answers import Answer, Answers
from nuncius.doors.stomp.background import Background


class Line:
    def __init__(self, answers: Answers, background: Background) -> None:
        self._answers = answers
        self._background = background
        self._standing: deque[tuple[Callable[[], None], Answer]] = deque()
        self._last: Callable[[], None] | None = None
        self.is_held_up = False

    def enter(self, take: Callable[[], None], answer: Answer) -> None:
        """Calls `take` when it is its turn, at once if it can be."""
        if self.is_held_up:
            self._standing.append((take, answer))
        else:
            take()

    def wait_for(self, work: Coroutine[Any, Any, None], done: Callable[[Exception | None], None]) -> None:
        """Those behind it stand in line until the work is done; `done` learns how it went, before them."""
        self.is_held_up = True
        task = self._background.start(work, reported=False)
        task.add_done_callback(partial(self._waited, done))

    def drop(self) -> None:
        """Those who stand in line are not taken any more, and nobody is told that they were."""
        while self._standing:
            self._answers.give(self._standing.popleft()[1], b"")

    def at_the_end(self, last: Callable[[], None]) -> None:
        """Calls `last` when nobody stands in line any more, at once if that is so."""
        if self.is_held_up:
            self._last = last
        else:
            last()

    def _waited(self, done: Callable[[Exception | None], None], task: "asyncio.Task[None]") -> None:
        self.is_held_up = False
        error = task.exception()
        done(error if isinstance(error, Exception) else None)
        while self._standing and not self.is_held_up:
            self._standing.popleft()[0]()
        if self._last is not None and not self.is_held_up:
            self._last()
