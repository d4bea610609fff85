"""Order the answers of a connection, and bound what they cost.

Order: a `RequestLine` begins a client's requests in the order of their arrival and sends their answers in
that order, however many of them run together.

Bounds: a request of thirty bytes can ask for eight megabytes, and the size of an answer is unknown before it
is looked up. So a connection looks up only as many answers at a time as are expected to fit into PORTION,
going by the sizes of the last ones; none while the client does not read, and none that the node's memory has
no room for (`Replies`). A connection whose answers are small looks up all of them together. A listener that
sends answers of unknown number stops at some bytes until the client has read them (`UnreadAnswers`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from nuncius.broker.model import Pressure

if TYPE_CHECKING:
    from nuncius.doors.wire import Wire

PORTION = 4 << 20  # bytes of answers
COPIES = 3  # of an answer during its lookup: as the store sends it, as entries, and as a frame
LEAST = 4 << 10  # bytes, the least that an answer is expected to have


class Replies:
    """Context manager of a lookup: enter it (`async with`) to look up an answer, leave it when about to send
    that."""

    def __init__(
        self,
        pressure: Pressure,
        is_stalled: Callable[[], bool],
        writable: Callable[[], Awaitable[None]],
        first: int,
    ) -> None:
        """`is_stalled` tells whether the client has much to read; `writable` waits until it has not. `first`
        is the expected size of the first answer."""
        self._pressure = pressure
        self._is_stalled = is_stalled
        self._writable = writable
        self._loop = asyncio.get_running_loop()  # kept, because looking it up is a system call on Python 3.11
        self._expected = first
        self._largest = self._largest_before = 0  # sizes seen in this period and in the one before
        self._open: deque[int] = deque()  # bytes reserved for each lookup under way
        self._gate = asyncio.Lock()  # held by the next lookup in turn
        self._room = asyncio.Event()

    def sent(self, size: int) -> None:
        """Note the size of an answer; small ones need not be noted."""
        self._largest = max(self._largest, size)

    async def __aenter__(self) -> None:
        if self._gate.locked() or self._is_stalled() or not self._fits() or not self._reserve():
            async with self._gate:
                await self._writable()
                while not self._fits():
                    self._room.clear()
                    await self._room.wait()
                size = COPIES * self._expected
                await self._pressure.reserve(size)
                self._open.append(size)

    async def __aexit__(self, *error: object) -> None:
        # The answer is sent in this turn of the loop or in the next; its memory stays reserved until then.
        self._loop.call_soon(self._loop.call_soon, self._end)

    def _fits(self) -> bool:
        return not self._open or (len(self._open) + 1) * self._expected <= PORTION

    def _reserve(self) -> bool:
        """Reserve memory for an answer without waiting. Return False if there is not enough."""
        size = COPIES * self._expected
        if self._pressure.try_reserve(size):
            self._open.append(size)
            return True
        return False

    def _end(self) -> None:
        self._pressure.release(self._open.popleft())
        self._expected = max(self._largest, self._largest_before, LEAST, self._expected // 8)
        self._largest, self._largest_before = 0, self._largest
        self._room.set()


class Reply(msgspec.Struct, eq=False):
    """The answer that a client gets for one request."""

    request: Any
    cost: int
    """Bytes for which the wire counts the request as unanswered."""
    kind: Hashable = None
    """Requests of one kind run together; a request without a kind runs alone."""
    data: bytes | None = None
    """The answer, once it is known; empty if there is none to send."""
    is_last: bool = False
    """True if the connection ends after this answer."""


R = TypeVar("R", bound=Reply)


class RequestLine(Generic[R]):
    """The open requests of a client, in order. A request begins when those before it have begun and, unless
    they are of its kind, are answered. Its answer is sent when theirs are."""

    __slots__ = ("_advancing", "_begin", "_begun", "_behind", "_unread", "_wire", "is_closed")

    def __init__(
        self, wire: "Wire", begin: Callable[[R], bool], unread: "UnreadAnswers | None" = None
    ) -> None:
        """`begin` starts a request. It returns False to leave it, and those behind it, until `advance`.
        `unread` counts the answers."""
        self._wire = wire
        self._begin = begin
        self._unread = unread
        self._begun: deque[R] = deque()
        self._behind: deque[R] = deque()
        self._advancing = False
        self.is_closed = False
        """Set by the session to drop the requests that come from now on."""

    @property
    def first(self) -> R | None:
        """The request that all others wait for."""
        return self._begun[0] if self._begun else None

    @property
    def is_empty(self) -> bool:
        return not self._begun and not self._behind

    def enter(self, reply: R) -> None:
        """Begin a request in its turn, at once if possible."""
        if self.is_closed:
            self._wire.answered(reply.cost)
            return
        self._behind.append(reply)
        if not self._advancing:
            self.advance()

    def owe(self, reply: R) -> R:
        """Add an answer that needs no request: it is sent when the requests that have begun are answered."""
        self._begun.append(reply)
        return reply

    def advance(self) -> None:
        """Begin the requests whose turn it is."""
        if self._advancing:
            return
        self._advancing = True
        begun, behind = self._begun, self._behind
        while behind:
            reply = behind[0]
            if begun and (reply.kind is None or begun[-1].kind is not reply.kind):
                break
            begun.append(behind.popleft())
            if not self._begin(reply):
                behind.appendleft(begun.pop())
                break
        self._advancing = False

    def answer(self, reply: R, data: bytes) -> bool:
        """Complete a request. Send its answer, if any, and those that waited for it. Return False if the line
        is empty now."""
        reply.data = data
        begun = self._begun
        if begun[0] is not reply:
            if self._unread is not None:
                self._unread.kept += len(data)
            return True
        begun.popleft()
        self._leave(reply, data)
        while begun and (kept := begun[0].data) is not None:
            if self._unread is not None:
                self._unread.kept -= len(kept)
            self._leave(begun.popleft(), kept)
        if self._behind:
            self.advance()
        return bool(begun or self._behind)

    def end_with_the_newest(self) -> bool:
        """Close the connection after the answers that are open now. Return False if there are none."""
        if self.is_empty:
            return False
        (self._behind or self._begun)[-1].is_last = True
        return True

    def drop(self) -> None:
        """Drop the requests that have not begun: there is no more client for their answers."""
        while self._behind:
            self._wire.answered(self._behind.popleft().cost)

    def _leave(self, reply: R, data: bytes) -> None:
        if data:
            if self._unread is not None:
                self._unread.sent(len(data))
            self._wire.answer(data, reply.cost)
        else:
            self._wire.answered(reply.cost)
        if reply.is_last:
            self._wire.close()


class UnreadAnswers:
    """Bytes sent to a client since it last caught up. When they are many, the session waits."""

    def __init__(self, wire: "Wire", most: int, go_on: Callable[[], None]) -> None:
        """`go_on` is called when the client has caught up after more than `most` bytes."""
        self._wire = wire
        self._most = most
        self._go_on = go_on
        self._sent = 0
        self._waiting: asyncio.Task[None] | None = None
        self.is_much = False
        self.kept = 0
        """Bytes of answers that wait for earlier answers."""

    def sent(self, size: int) -> None:
        """Count an answer that is sent."""
        self._sent += size
        if self._sent > self._most and not self.is_much:
            self.is_much = True
            self._waiting = asyncio.get_running_loop().create_task(self._until_read())

    async def _until_read(self) -> None:
        await self._wire.writable()
        self._sent = 0
        self.is_much = False
        self._go_on()
