"""Handle the frames of a connection in order.

Most frames are only passed on, and the next follows at once. Those that change the meaning of later frames
are waited for, and later frames queue behind them.
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
        """Call `take` in its turn, at once if possible."""
        if self.is_held_up:
            self._standing.append((take, answer))
        else:
            take()

    def wait_for(self, work: Coroutine[Any, Any, None], done: Callable[[Exception | None], None]) -> None:
        """Delay later frames until the work is done. `done` gets its error or None before they are
        handled."""
        self.is_held_up = True
        task = self._background.start(work, reported=False)
        task.add_done_callback(partial(self._waited, done))

    def drop(self) -> None:
        """Drop the waiting frames without an answer."""
        while self._standing:
            self._answers.give(self._standing.popleft()[1], b"")

    def at_the_end(self, last: Callable[[], None]) -> None:
        """Call `last` when no frame waits any more, at once if none does."""
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
