"""Taking from queues: many calls become one `take_many`.

A queue that is emptied by deleting rows leaves dead entries at the head of its index until vacuum comes, and
vacuum cannot come while anybody holds a transaction open. So the taker remembers, for each queue, receiver
and priority, the last id that it took, and starts looking after it: ids are in commit order, so nothing
can appear before it any more.
"""

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from itertools import count, repeat
from typing import Any

import msgspec

from nuncius.store.combiner import Call, Detour
from nuncius.store.driver import Connection
from nuncius.store.lane import CONNECTION_ERRORS
from nuncius.store.putting import MissingQueues

# Column by column: an array a column is cheaper than a row a message, on both sides of the socket.
COLUMNS = (
    "select array_agg(request), array_agg(message_id), array_agg(queue_id), array_agg(sender_id),"
    " array_agg(receiver_id), array_agg(context), array_agg(priority),"
    " array_agg((date_part('epoch', time_of_arrival) * 1000000)::bigint), array_agg(message),"
    " case when count(headers) > 0 then array_agg(headers) end"
)
TAKE = COLUMNS + " from nuncius.take_many($1, $2, $3, $4, $5, $6, $7, $8)"
LEASE = COLUMNS + (
    ", array_agg(attempts), array_agg(origin)"
    " from nuncius.lease_many($9, $10, $1, $2, $3, $4, $5, $6, $7, $8)"
)

PRIORITIES = 10
BY_PRIORITY, BY_TIME = 1, 2
REMEMBERED = 50_000  # pairs of queue and receiver
BUSY, MISSING = 0, -1  # numbers of requests that are none


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
    """A message that its consumer has to acknowledge. It was delivered `attempts` times before; `origin` is
    the id that stays the same over all deliveries, `lease_id` stands for this one."""

    lease_id: int
    message: Message
    attempts: int
    origin: int


class TakeCall(Call):
    __slots__ = ("limit", "request")

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
    ) -> None:
        # What is leased by a call whose answer was lost is found and goes back, so the call may be repeated.
        super().__init__(done, caller, queue_id, limit, 200, leased)
        self.request = (queue_id, receiver, sender, context, mode)
        self.limit = limit


class Taker:
    """Takes for good or, when there is a holder, leases to it."""

    def __init__(self, holder: Callable[[], int] | None = None) -> None:
        self._holder = holder
        self._batches = count(1)
        self._after: dict[tuple[int, int], list[int]] = {}
        self._connection: Connection | None = None
        self.lost: deque[int] = deque(maxlen=1000)
        """Batches of leases whose answer did not arrive."""

    async def take(self, connection: Connection, calls: Sequence[TakeCall], wait: bool) -> list[Any]:
        """Carries out a batch. Results: lists of Message (or Leased), shorter than the limit when there are
        no more, MissingQueues (for leases only), or a Detour. Calls that ask the same are asked once, and
        share what comes back in order."""
        if connection is not self._connection and not wait:
            # A new connection may lead to a server that was restored from a backup: ids may repeat.
            self._connection = connection
            self._after.clear()
        wanted: dict[tuple[int, int, int, int, int], int] = {}
        for call in calls:
            wanted[call.request] = wanted.get(call.request, 0) + call.limit
        requests = list(wanted)
        row = await self._ask(
            connection,
            [r[0] for r in requests],
            [r[1] for r in requests],
            [r[2] for r in requests],
            [r[3] for r in requests],
            [r[4] for r in requests],
            list(wanted.values()),
            [place for r in requests for place in self._places(r[0], r[1])],
            wait,
        )
        numbers, *columns = row[:9]
        found: dict[tuple[int, int, int, int, int], list[Any]] = {}
        elsewhere: dict[int, Any] = {}  # queue: why nothing can be taken from it
        if numbers:
            messages = list(map(Message, *columns, row[9] or repeat(None)))
            taken = messages if self._holder is None else map(Leased, row[1], messages, row[10], row[11])
            for number, message, one in zip(numbers, messages, taken, strict=True):
                if number == BUSY:
                    elsewhere[message.queue_id] = Detour.BUSY
                    continue
                if number == MISSING:
                    elsewhere[message.queue_id] = MissingQueues((message.queue_id,))
                    continue
                request = requests[number - 1]
                found.setdefault(request, []).append(one)
                if request[2] == 0 and request[3] == 0:
                    self._remember(message)
        return [
            elsewhere.get(call.request[0]) or self._share(call, found.get(call.request)) for call in calls
        ]

    async def _ask(self, connection: Connection, *arguments: Any) -> Any:
        if self._holder is None:
            return await connection.fetchrow(TAKE, *arguments)
        batch = next(self._batches)
        try:
            return await connection.fetchrow(LEASE, *arguments, self._holder(), batch)
        except CONNECTION_ERRORS:
            self.lost.append(batch)
            raise

    @staticmethod
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

    def _places(self, queue_id: int, receiver: int) -> list[int]:
        nowhere = [0] * PRIORITIES
        return self._after.get((queue_id, 0), nowhere) + (
            self._after.get((queue_id, receiver), nowhere) if receiver else nowhere
        )

    def _remember(self, message: Message) -> None:
        pair = (message.queue_id, message.receiver_id)
        places = self._after.get(pair)
        if places is None:
            if len(self._after) >= REMEMBERED:
                self._after.pop(next(iter(self._after)))
            places = self._after[pair] = [0] * PRIORITIES
        places[message.priority - 1] = max(places[message.priority - 1], message.message_id)
