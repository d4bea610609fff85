"""Taking from queues: many calls become one `take_many`.

Taking deletes rows, which leaves dead entries at the head of a queue's index until vacuum removes them, and
vacuum cannot remove them while a transaction stays open. So the taker remembers, for each queue, receiver
and priority, the last id that it took, and looks from there on: ids are in commit order, so no message can
appear before it any more. A take by time leaves nothing older in any priority, a take by priority nothing
older in the same or a higher one.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from itertools import count, repeat
from typing import Any

import msgspec

from nuncius.store.calls.putting import MissingQueues
from nuncius.store.combiner.combiner import Call, Detour
from nuncius.store.connecting import CONNECTION_ERRORS
from nuncius.store.driver import Connection

# Column by column: an array per column is cheaper than a row per message, on both sides of the socket.
COLUMNS = (
    "select array_agg(request), array_agg(message_id), array_agg(queue_id), array_agg(sender_id),"
    " array_agg(receiver_id), array_agg(context), array_agg(priority),"
    " array_agg((date_part('epoch', time_of_arrival) * 1000000)::bigint), array_agg(message),"
    " case when count(headers) > 0 then array_agg(headers) end"
)
# The places are sent as text: the driver encodes each number of an array, and there are twenty per request.
TAKE = COLUMNS + " from nuncius.take_many($1, $2, $3, $4, $5, $6, $7::text::bigint[], $8, $9)"
LEASE = COLUMNS + (
    ", array_agg(attempts), array_agg(origin)"
    " from nuncius.lease_many($10, $11, $1, $2, $3, $4, $5, $6, $7::text::bigint[], $8, $9)"
)
MAX_TAKE_BYTES = 8 << 20  # of a batch; and one message, if that is larger

PRIORITIES = 10
NOWHERE = [0] * PRIORITIES
BY_PRIORITY, BY_TIME = 1, 2
REMEMBERED = 50_000  # pairs of queue and receiver
BUSY, MISSING, MORE = 0, -1, -2  # in place of a request's number

_Request = tuple[int, int, int, int, int]  # queue, receiver, sender, context, mode


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message of a queue. `time` is its arrival in microseconds since 1970."""

    message_id: int
    queue_id: int
    sender_id: int
    receiver_id: int
    context: int
    priority: int
    time: int
    body: bytes
    headers: str | None


class Leased(msgspec.Struct, frozen=True, gc=False):
    """A message that its consumer has to acknowledge. It was delivered `attempts` times before. `origin` is
    the id that stays the same over all deliveries, `lease_id` the id of this delivery."""

    lease_id: int
    message: Message
    attempts: int
    origin: int


class Again(Enum):
    """Reasons why a call got nothing, although there may be messages for it."""

    FULL = "the answer was full before its turn came"
    STALLED = "its caller does not read what it got before"


def never_stalled() -> bool:
    """Return False: the default for callers that never stall."""
    return False


class TakeCall(Call):
    """A take. `is_stalled` is asked just before: nothing is taken for a caller that does not read."""

    __slots__ = ("is_stalled", "limit", "queue_id", "request")

    def __init__(
        self,
        done: Callable[[Any], None],
        caller: Hashable,
        queue_id: int,
        receiver: int,
        sender: int,
        context: int,
        mode: int,
        limit: int,
        *,
        leased: bool = False,
        is_stalled: Callable[[], bool] = never_stalled,
    ) -> None:
        # Messages leased by a call whose answer was lost are found and go back, so the call may be repeated.
        super().__init__(done, caller, ("take", queue_id), limit, 200, leased)
        self.queue_id = queue_id
        self.request = (queue_id, receiver, sender, context, mode)
        self.limit = limit
        self.is_stalled = is_stalled


class Taker:
    """Takes messages for good or, with a holder, leases them to it."""

    def __init__(self, holder: Callable[[], int] | None = None) -> None:
        self._holder = holder
        self._batches = count(1)
        self._after: OrderedDict[tuple[int, int], list[int]] = OrderedDict()
        self._connection: Connection | None = None
        self.lost: deque[int] = deque(maxlen=1000)
        """Batches of leases whose answer did not arrive."""

    async def take(self, connection: Connection, calls: Sequence[TakeCall], wait: bool) -> list[Any]:
        """Carry out a batch. Results: lists of Message (or Leased), shorter than the limit if there are no
        more or they are large, MissingQueues, Again, or a Detour."""
        asking = self.asking(connection, calls, wait)
        return asking.results(await self._ask(connection, *asking.arguments) if asking.arguments else None)

    def asking(self, connection: Connection, calls: Sequence[TakeCall], wait: bool) -> "Asking":
        """Prepare a batch for that connection."""
        if connection is not self._connection and not wait:
            # A new connection may lead to a server that was restored from a backup: ids may repeat.
            self._connection = connection
            self._after.clear()
        return Asking(self, calls, wait)

    async def _ask(self, connection: Connection, *arguments: Any) -> Any:
        if self._holder is None:
            return await connection.fetchrow(TAKE, *arguments)
        batch = next(self._batches)
        try:
            return await connection.fetchrow(LEASE, *arguments, self._holder(), batch)
        except CONNECTION_ERRORS:
            self.lost.append(batch)
            raise

    def leased(self, row: Sequence[Any], messages: Sequence[Message]) -> Iterable[Any]:
        """Return the messages or, with a holder, the leases."""
        return messages if self._holder is None else map(Leased, row[1], messages, row[10], row[11])

    def places(self, queue_id: int, receiver: int) -> str:
        """Return the ids from which to look on: twenty of them, see take_many."""
        shared = self._after.get((queue_id, 0), NOWHERE)
        own = self._after.get((queue_id, receiver), NOWHERE) if receiver else NOWHERE
        return ",".join(map(str, shared + own))

    def remember(self, message: Message, mode: int) -> None:
        """Record a taken message: no older message that the mode prefers is left."""
        pair = (message.queue_id, message.receiver_id)
        places = self._after.get(pair)
        if places is None:
            if len(self._after) >= REMEMBERED:
                self._after.popitem(last=False)
            places = self._after[pair] = [0] * PRIORITIES
        lowest = message.priority - 1 if mode == BY_PRIORITY else 0
        places[lowest:] = [max(place, message.message_id) for place in places[lowest:]]


class Asking:
    """A batch of calls as arguments of the procedure. Equal calls become one request, and share its messages
    in order."""

    def __init__(self, taker: Taker, calls: Sequence[TakeCall], wait: bool) -> None:
        self._taker = taker
        self._calls = calls
        self._stalled = {call for call in calls if call.is_stalled()}
        wanted: dict[_Request, int] = {}
        for call in calls:
            if call not in self._stalled:
                wanted[call.request] = wanted.get(call.request, 0) + call.limit
        self._requests = requests = list(wanted)
        self.arguments: tuple[Any, ...] = ()
        """Empty if there is nothing to request."""
        if requests:
            self.arguments = (
                [r[0] for r in requests],
                [r[1] for r in requests],
                [r[2] for r in requests],
                [r[3] for r in requests],
                [r[4] for r in requests],
                list(wanted.values()),
                f"{{{','.join([taker.places(r[0], r[1]) for r in requests])}}}",
                wait,
                MAX_TAKE_BYTES,
            )

    def results(self, row: Sequence[Any] | None) -> list[Any]:
        """Convert the procedure's answer to a result for each call. None: there was nothing to request."""
        found: dict[_Request, list[Any]] = {}
        elsewhere: dict[int, Any] = {}  # queue: why nothing can be taken from it
        nothing: list[Any] | Again = []
        if row is not None and row[0]:
            messages = list(map(Message, *row[1:9], row[9] or repeat(None)))
            taken = self._taker.leased(row, messages)
            for number, message, one in zip(row[0], messages, taken, strict=True):
                if number == BUSY:
                    elsewhere[message.queue_id] = Detour.BUSY
                    continue
                if number == MISSING:
                    elsewhere[message.queue_id] = MissingQueues((message.queue_id,))
                    continue
                if number == MORE:
                    nothing = Again.FULL
                    continue
                request = self._requests[number - 1]
                found.setdefault(request, []).append(one)
                if request[2] == 0 and request[3] == 0:
                    self._taker.remember(message, request[4])
        return [
            Again.STALLED
            if call in self._stalled
            else elsewhere.get(call.request[0]) or _share(call, found.get(call.request)) or nothing
            for call in self._calls
        ]


def _share(call: TakeCall, found: list[Any] | None) -> list[Any]:
    if not found:
        return []
    if len(found) <= call.limit:
        share = found[:]
        found.clear()
    else:
        share = found[: call.limit]
        del found[: call.limit]
    return share
