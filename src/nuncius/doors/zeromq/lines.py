"""Send answers in the order of requests.

The protocol has no request ids: a client that sends several requests without waiting matches answers by their
order. So requests with the same envelope form a line. Consecutive gets run together, and so do puts, because
the broker keeps their order; any other request, and a change from one kind to the other, waits until the
requests before it are answered. Clients behind one proxy have different envelopes, and do not wait for each
other.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from nuncius.broker.model import IdRequest
from nuncius.doors.zeromq.pubsub_codec import Get, Put, Request

_TOGETHER = (Get, Put)


class Asked:
    """An open request. `answer` is the message to send, empty if the request stays unanswered."""

    __slots__ = ("answer", "as_text", "cost", "got", "line", "looking", "number", "request")

    def __init__(
        self, number: int, line: "Line", request: Request | None, cost: int, *, as_text: bool
    ) -> None:
        self.number = number  # its number among the connection's requests
        self.line = line
        self.request = request  # None: malformed
        self.cost = cost
        self.as_text = as_text
        self.answer: bytes | None = None
        self.looking: IdRequest | None = None
        self.got: asyncio.Future[None] | None = None  # awaited until the request is answered


class Line:
    __slots__ = ("_advancing", "_begin", "_begun", "_behind", "envelope")

    def __init__(self, envelope: tuple[bytes, ...], begin: Callable[[Asked], bool]) -> None:
        self.envelope = envelope
        self._begin = begin
        self._begun: deque[Asked] = deque()
        self._behind: deque[Asked] = deque()
        self._advancing = False

    @property
    def is_empty(self) -> bool:
        return not self._begun and not self._behind

    @property
    def first(self) -> Asked | None:
        """The request that all others of the line wait for."""
        return self._begun[0] if self._begun else None

    def enter(self, asked: Asked) -> None:
        self._behind.append(asked)
        if not self._advancing:
            self.advance()

    def advance(self) -> None:
        """Start the requests that may run. If `begin` returns False, the request stays first in the line, and
        the session calls `advance` again later."""
        if self._advancing:
            return
        self._advancing = True
        while self._behind and self._may_begin(self._behind[0]):
            asked = self._behind.popleft()
            self._begun.append(asked)
            if not self._begin(asked):
                self._begun.pop()
                self._behind.appendleft(asked)
                break
        self._advancing = False

    def _may_begin(self, asked: Asked) -> bool:
        if not self._begun:
            return True
        kind = type(asked.request)
        return kind in _TOGETHER and type(self._begun[-1].request) is kind

    def answered(self) -> list[Asked]:
        """Remove and return the requests whose answers can be sent now, in order."""
        ready = []
        while self._begun and self._begun[0].answer is not None:
            ready.append(self._begun.popleft())
        return ready

    def leave(self) -> list[Asked]:
        """Drop and return the requests that have not started: the client is gone."""
        never = list(self._behind)
        self._behind.clear()
        return never
