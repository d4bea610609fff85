"""Queues: put, take, ask, and administration."""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import asyncpg

from nuncius.broker import future
from nuncius.broker.background.listener import Listener
from nuncius.broker.errors import AlreadyExists, InvalidInput, NoSuchQueue
from nuncius.broker.limits import (
    Limits,
    check_bodies,
    check_count,
    check_headers,
    check_int32,
    check_int64,
    check_name,
    check_priority,
)
from nuncius.broker.names import Names
from nuncius.broker.queues.leases import Leases
from nuncius.broker.queues.putting import Putting, ignore, missing
from nuncius.broker.queues.queue import Queue, QueueInfo
from nuncius.broker.queues.waiter import Waiter
from nuncius.broker.queues.waiting import WaitingRoom
from nuncius.broker.topics.topic import Publisher
from nuncius.broker.topics.topics import PER_ENTRY
from nuncius.store.calls.exchanging import PutsAndTakes, is_take
from nuncius.store.calls.putting import Letter, MissingQueues, PutCall, Stored, put_into_all
from nuncius.store.calls.taking import BY_PRIORITY, BY_TIME, Leased, Message, Taker
from nuncius.store.store import Store

log = logging.getLogger(__name__)

BROWSE = (
    "select message_id, queue_id, sender_id, receiver_id, context, priority,"
    " (date_part('epoch', time_of_arrival) * 1000000)::bigint, message, headers::text"
    " from (select *, sum(octet_length(message)) over (order by message_id) - octet_length(message)"
    "  as bytes_before from nuncius.browse_queues($1, $2, $3)) m"
    " where bytes_before < $4 order by message_id"
)
BROWSE_BYTES = 8 << 20
CONTEXTS_AT_ONCE = 100


def _is_not() -> bool:
    """Return False: the default for callers that never stall."""
    return False


class Queues:
    def __init__(self, store: Store, listener: Listener, limits: Limits) -> None:
        self._store = store
        self._listener = listener
        self._limits = limits
        self._loop = asyncio.get_running_loop()  # kept: asking for it costs a system call on Python 3.11
        self._exchange = store.combiner("put and take", PutsAndTakes().carry_out, order=is_take)
        leaser = Taker(lambda: listener.holder)
        taking_many = store.combiner("take many", Taker().take)
        leasing = store.combiner("lease", leaser.take)
        self._room = WaitingRoom(self._exchange, taking_many, leasing, self._return, self._give_up)
        self.leases = Leases(store, listener, limits, leaser, self._room.look_again)
        self._contexts: deque[int] = deque()
        listener.on_queue = self._room.look_again
        self.names = Names(self.find)

    # Putting

    def put_soon(
        self,
        queue_id: int,
        letters: Sequence[Letter],
        done: Callable[[Any], None],
        *,
        publisher: Publisher | None = None,
        count: int = 0,
        caller: Hashable = None,
    ) -> None:
        """Put messages into one queue together. `done` gets a Stored or an exception. `count` is the
        publisher's count for the first message in this queue."""
        size = self._check(letters, publisher, count)
        publisher_id = None if publisher is None else publisher.publisher_id
        call = PutCall(done, caller, queue_id, letters, publisher_id, count, size)
        self._exchange.submit(call)  # before the takes of the readers that are called for them
        called = self._room.coming(queue_id, letters)
        call.done = partial(self._stored, queue_id, letters, called, done)

    async def put_into_all(
        self,
        queue_ids: Sequence[int],
        letter: Letter,
        *,
        publisher: Publisher | None = None,
        count: int = 0,
    ) -> Stored:
        """Put one message into each of the queues, or into none if one of them does not exist."""
        self._check([letter], publisher, count)
        queue_ids = list(dict.fromkeys(queue_ids))
        if not 1 <= len(queue_ids) <= self._limits.max_batch:
            raise InvalidInput(f"name 1 to {self._limits.max_batch} queues")
        publisher_id = None if publisher is None else publisher.publisher_id
        result = await self._store.run(
            lambda connection: put_into_all(connection, queue_ids, letter, publisher_id, count),
            repeatable=publisher is not None,
        )
        if isinstance(result, MissingQueues):
            raise missing(result)
        for queue_id in queue_ids:
            self._arrived(queue_id, [letter])
        return result  # type: ignore[no-any-return]

    def prepare(self, puts: Sequence[tuple[int, Letter, Publisher | None, int]]) -> Putting:
        """Check the puts of a transaction."""
        calls = []
        for queue_id, letter, publisher, count in puts:
            size = self._check([letter], publisher, count)
            publisher_id = None if publisher is None else publisher.publisher_id
            calls.append(PutCall(ignore, None, queue_id, [letter], publisher_id, count, size))
        return Putting(calls, self._arrived)

    def _check(self, letters: Sequence[Letter], publisher: Publisher | None, count: int) -> int:
        size = check_bodies(self._limits, [letter.body for letter in letters])
        for letter in letters:
            check_priority(letter.priority)
            check_int32("a receiver", letter.receiver)
            check_int32("a context", letter.context)
            if letter.headers is not None:
                check_headers(self._limits, [letter.headers], 1)
        if publisher is not None:
            check_count(count)
        return size + PER_ENTRY * len(letters)

    def _stored(
        self,
        queue_id: int,
        letters: Sequence[Letter],
        called: Sequence[Waiter | None],
        done: Callable[[Any], None],
        result: Any,
    ) -> None:
        if type(result) is Stored:
            done(result)
            new = result.skipped
            self._arrived(queue_id, letters[new:], result.ids, called[new:])
        else:
            self._room.look_again(queue_id)  # the message may be stored nevertheless
            done(missing(result) if isinstance(result, MissingQueues) else result)

    def _arrived(
        self,
        queue_id: int,
        letters: Sequence[Letter],
        ids: Sequence[int] = (),
        called: Sequence[Waiter | None] = (),
    ) -> None:
        self._room.arrived(queue_id, letters, ids, called)
        self._listener.announce_queue(queue_id)

    def put_back(self, messages: Sequence[Message], done: Callable[[Any], None]) -> None:
        """Put back messages of one queue that were taken and not delivered, behind their equals."""
        letters = [
            Letter(m.body, m.priority, m.sender_id, m.receiver_id, m.context, m.headers) for m in messages
        ]
        self.put_soon(messages[0].queue_id, letters, done)

    def _return(self, messages: Sequence[Message]) -> None:
        """Put back messages that were taken for a reader that has gone."""
        self.put_back(messages, partial(self._returned, messages))

    def _returned(self, messages: Sequence[Message], result: Any) -> None:
        if isinstance(result, Exception):
            facts = {"queue_id": messages[0].queue_id, "count": len(messages), "error": str(result)}
            log.error("messages could not be put back", extra=facts)

    # Taking

    def take_soon(
        self,
        queue_id: int,
        receiver: int,
        done: Callable[[Any], None],
        *,
        sender: int = 0,
        context: int = 0,
        mode: int = BY_PRIORITY,
        limit: int = 1,
        wait: float = 0,
        caller: Hashable = None,
        is_stalled: Callable[[], bool] = _is_not,
    ) -> Waiter:
        """Take up to `limit` messages that the receiver may see, and wait up to `wait` seconds for the first.
        `done` gets a list of Message, empty if there was none, or an exception. Nothing is taken while
        `is_stalled` returns True; call `resume` when the caller reads again."""
        return self._take_soon(
            queue_id, receiver, sender, context, mode, limit, wait, done, caller, False, is_stalled
        )

    def _take_soon(
        self,
        queue_id: int,
        receiver: int,
        sender: int,
        context: int,
        mode: int,
        limit: int,
        wait: float,
        done: Callable[[Any], None],
        caller: Hashable,
        leased: bool,
        is_stalled: Callable[[], bool],
    ) -> Waiter:
        if mode not in (BY_PRIORITY, BY_TIME):
            raise InvalidInput("a queue is read by priority (1) or by time (2)")
        if not 1 <= limit <= self._limits.max_batch:
            raise InvalidInput(f"take 1 to {self._limits.max_batch} messages")
        check_int32("a receiver", receiver)
        check_int32("a sender", sender)
        check_int32("a context", context)
        deadline = self._loop.time() + wait
        waiter = Waiter(
            queue_id, receiver, sender, context, mode, limit, deadline, done, caller, leased, is_stalled
        )
        self._room.enter(waiter)
        return waiter

    def lease_soon(
        self,
        queue_id: int,
        receiver: int,
        done: Callable[[Any], None],
        *,
        limit: int = 1,
        wait: float = 0,
        caller: Hashable = None,
        is_stalled: Callable[[], bool] = _is_not,
    ) -> Waiter:
        """Take by priority, like `take_soon`, for a reader that acknowledges. `done` gets a list of Leased;
        their messages stay in the store until they are settled or released."""
        return self._take_soon(
            queue_id, receiver, 0, 0, BY_PRIORITY, limit, wait, done, caller, True, is_stalled
        )

    def _give_up(self, leased: Sequence[Leased]) -> None:
        """Release messages that were leased for a reader that has gone."""
        self.leases.give_up([one.lease_id for one in leased])

    def waiting_alone(self) -> Counter[int]:
        """Count the waiting requests that belong to no lasting connection, by queue."""
        return self._room.waiting_alone()

    def resume(self, waiter: Waiter) -> None:
        """Let a reader that was stalled take again."""
        self._room.resume(waiter)

    def leave(self, waiter: Waiter) -> None:
        """End the wait of a reader that has gone. Messages taken for it and not delivered go back."""
        self._room.leave(waiter)

    async def take(self, queue_id: int, receiver: int = 0, **options: Any) -> list[Message]:
        taken, done = future.new()
        waiter = self.take_soon(queue_id, receiver, done, **options)
        try:
            return await taken  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            if taken.done() and not taken.cancelled() and taken.exception() is None and taken.result():
                self._return(taken.result())  # they came just when the caller was cancelled
            raise
        finally:
            self.leave(waiter)

    async def ask(
        self,
        queue_id: int,
        letter: Letter,
        wait: float,
        *,
        caller: Hashable = None,
        is_stalled: Callable[[], bool] = _is_not,
    ) -> list[Message]:
        """Put a request with a new context and wait for its answer: a message in the same queue, for the
        sender, with that context. Return an empty list if none came in time."""
        if not letter.sender:
            raise InvalidInput("a request needs a client to answer to")
        context = await self._new_context()
        request = Letter(
            letter.body, letter.priority, letter.sender, letter.receiver, context, letter.headers
        )
        stored, done = future.new()
        self.put_soon(queue_id, [request], done, caller=caller)
        await stored
        return await self.take(
            queue_id, letter.sender, context=context, wait=wait, caller=caller, is_stalled=is_stalled
        )

    async def _new_context(self) -> int:
        if not self._contexts:
            rows = await self._store.query(
                "select nextval('nuncius.contexts') from generate_series(1, $1)", CONTEXTS_AT_ONCE
            )
            self._contexts.extend(row[0] for row in rows)
        return self._contexts.popleft()

    # Looking after

    async def create(self, name: str) -> Queue:
        check_name("queue", name)
        try:
            rows = await self._store.execute("select * from nuncius.create_queue($1)", name)
        except asyncpg.UniqueViolationError:
            raise AlreadyExists(f"there is a queue {name!r} already") from None
        return Queue(*rows[0])

    async def ensure(self, name: str) -> Queue:
        """Return the queue of that name. Create it if it does not exist."""
        try:
            return await self.names.find(name)
        except NoSuchQueue:
            with contextlib.suppress(AlreadyExists):
                await self.create(name)
            # Not from `names`: another caller's look-up that began earlier would not find the queue.
            return await self.find(name)

    async def find(self, name: str) -> Queue:
        check_name("queue", name)
        rows = await self._store.query("select * from nuncius.get_queue_id($1)", name)
        if not rows:
            raise NoSuchQueue(f"there is no queue {name!r}")
        return Queue(*rows[0])

    async def find_by_id(self, queue_id: int) -> Queue:
        check_int32("a queue id", queue_id)
        rows = await self._store.query("select * from nuncius.get_queue_name($1)", queue_id)
        if not rows:
            raise NoSuchQueue(f"there is no queue {queue_id}")
        return Queue(*rows[0])

    async def all(self) -> list[Queue]:
        return [Queue(*row) for row in await self._store.query("select * from nuncius.list_queues()")]

    async def active(self, client_id: int) -> list[Queue]:
        """List the queues that have messages for this client."""
        rows = await self._store.query("select * from nuncius.get_active_queues($1)", client_id)
        return [Queue(*row) for row in rows]

    async def info(self, names: Sequence[str] | None = None) -> list[QueueInfo]:
        """Return the queues of those names, or all, with depth and oldest message."""
        rows = await self._store.query(
            "select q.queue_id, q.queue_name, count(m.queue_id),"
            " (date_part('epoch', min(m.time_of_arrival)) * 1000000)::bigint"
            " from nuncius.find_queues(null, $1) q left join nuncius.messages m using (queue_id)"
            " group by 1, 2 order by 2",
            names,
        )
        return [QueueInfo(*row) for row in rows]

    async def browse(self, queue_id: int, *, after: int = 0, limit: int = 100) -> list[Message]:
        """List messages of a queue, oldest first, without taking them. Large messages make the list shorter
        than the limit, but never empty."""
        check_int64("a message id", after)
        limit = min(limit, self._limits.max_batch)
        rows = await self._store.query(BROWSE, [queue_id], after, limit, BROWSE_BYTES)
        return [Message(*row) for row in rows]

    async def purge(self, queue_id: int) -> int:
        rows = await self._store.execute("select nuncius.purge_queues($1)", [queue_id])
        removed: int = rows[0][0]
        return removed

    async def delete(self, queue_id: int) -> None:
        rows = await self._store.execute("select nuncius.delete_queue($1)", queue_id)
        self.names.forget_all()
        if rows[0][0] is None:
            raise NoSuchQueue(f"there is no queue {queue_id}")
