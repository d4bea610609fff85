"""The line of a traced connection."""

from collections.abc import Callable

from nuncius.doors.replies import Reply, RequestLine, UnreadAnswers
from nuncius.doors.telesto.trace import Stopwatch
from nuncius.doors.wire import Wire


class TracedLine(RequestLine[Reply]):
    """Note when each answer is sent."""

    __slots__ = ("_watch",)

    def __init__(
        self, wire: Wire, begin: Callable[[Reply], bool], unread: UnreadAnswers, watch: Stopwatch
    ) -> None:
        super().__init__(wire, begin, unread)
        self._watch = watch

    def _leave(self, reply: Reply, data: bytes) -> None:
        super()._leave(reply, data)
        if data:
            self._watch.sent()
