"""Handle the frames of a connection in order.

Frames are carried out concurrently, through different combiners, but answered in order. So a RECEIPT confirms
its frame and every frame before it, and an ERROR comes after the receipts of all frames that succeeded before
it. Most frames are only passed on, and the next follows at once. Those that change the meaning of later
frames are waited for: they hold up the line.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from nuncius.broker.background.tasks import BackgroundWork
from nuncius.doors.replies import Reply, RequestLine
from nuncius.doors.wire import Wire

FRAME = "frame"  # the kind of all requests: frames run together


class FrameLine(RequestLine[Reply]):
    __slots__ = ("_background", "_last", "is_held_up")

    def __init__(self, wire: Wire, begin: Callable[[Reply], bool], background: BackgroundWork) -> None:
        """`begin` must return False while the line is held up."""
        super().__init__(wire, begin)
        wire.on_end = self.end_with_the_newest
        self._background = background
        self._last: Callable[[], None] | None = None
        self.is_held_up = False

    def wait_for(self, work: Coroutine[Any, Any, None], done: Callable[[Exception | None], None]) -> None:
        """Delay later frames until the work is done. `done` gets its error or None before they are
        handled."""
        self.is_held_up = True
        task = self._background.start(work, reported=False)
        task.add_done_callback(partial(self._waited, done))

    def at_the_end(self, last: Callable[[], None]) -> None:
        """Call `last` when no frame waits any more, at once if none does."""
        if self.is_held_up:
            self._last = last
        else:
            last()

    def _waited(self, done: Callable[[Exception | None], None], task: "asyncio.Task[None]") -> None:
        error = task.exception()
        self.is_held_up = False
        done(error if isinstance(error, Exception) else None)
        self.advance()
        if self._last is not None and not self.is_held_up:
            self._last()
