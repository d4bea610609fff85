"""Queues: put, take, ask, and administration."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import asyncpg

from nuncius.broker import future
from nuncius.broker.background.listener import Listener
from nuncius.broker.caller import NODE, Caller
from nuncius.broker.errors import AlreadyExists, InvalidInput, NoSuchQueue
from nuncius.broker.limits import Limits, check_int32, check_int64, check_name
from nuncius.broker.names import Names
from nuncius.broker.queues.leases import Leases
from nuncius.broker.queues.putting import Putting, check_letters, ignore, missing
from nuncius.broker.queues.queue import Queue, QueueInfo
from nuncius.broker.queues.waiter import Waiter
from nuncius.broker.queues.waiting import WaitingRoom
from nuncius.broker.topics.topic import Publisher
from nuncius.store.calls.exchanging import PutsAndTakes, is_take
from nuncius.store.calls.putting import Letter, MissingQueues, PutCall, Stored, put_into_all
from nuncius.store.calls.taking import BY_PRIORITY, BY_TIME, Leased, Message, Taker, never_stalled
from nuncius.store.queries import query
from nuncius.store.store import Store

log = logging.getLogger(__name__)

BROWSE_BYTES = 8 << 20
CONTEXTS_AT_ONCE = 100

DESCRIBE = query("queues", "describe")
BROWSE = query("queues", "browse")
CONTEXTS = query("queues", "contexts")


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
        self.resume = self._room.resume
        self.leave = self._room.leave
        self.leases = Leases(store, listener, limits, leaser, self._room.look_again)
        self._contexts: deque[int] = deque()
        listener.on_queue = self._room.look_again
        self.names = Names(self.find)
        self.on_put: Callable[[Caller, int], None] = lambda caller, count: None
        """Called with the messages of a put into several queues, which is no combiner's."""

    # Putting

    def put_soon(
        self,
        queue_id: int,
        letters: Sequence[Letter],
        done: Callable[[Any], None],
        *,
        publisher: Publisher | None = None,
        count: int = 0,
        caller: Caller = NODE,
    ) -> None:
        """Put messages into one queue together. `done` gets a Stored or an exception. `count` is the
        publisher's count for the first message in this queue."""
        size = check_letters(self._limits, letters, publisher, count)
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
        caller: Caller = NODE,
    ) -> Stored:
        """Put one message into each of the queues, or into none if one of them does not exist."""
        check_letters(self._limits, [letter], publisher, count)
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
        if not result.skipped:
            self.on_put(caller, len(queue_ids))
        for queue_id in queue_ids:
            self._arrived(queue_id, [letter])
        return result  # type: ignore[no-any-return]

    def prepare(self, puts: Sequence[tuple[int, Letter, Publisher | None, int]], caller: Caller) -> Putting:
        """Check the puts of a transaction."""
        calls = []
        for queue_id, letter, publisher, count in puts:
            size = check_letters(self._limits, [letter], publisher, count)
            publisher_id = None if publisher is None else publisher.publisher_id
            calls.append(PutCall(ignore, caller, queue_id, [letter], publisher_id, count, size))
        return Putting(calls, self._arrived)

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
        caller: Caller = NODE,
        is_stalled: Callable[[], bool] = never_stalled,
    ) -> Waiter:
        """Take up to `limit` messages that the receiver may see, and wait up to `wait` seconds for the first.
        `done` gets a list of Message, empty if there was none, or an exception. Nothing is taken while
        `is_stalled` returns True; call `resume` when the caller reads again."""
        deadline = self._loop.time() + wait
        return self._enter(
            Waiter(
                queue_id, receiver, sender, context, mode, limit, deadline, done, caller, False, is_stalled
            )
        )

    def _enter(self, waiter: Waiter) -> Waiter:
        if waiter.mode not in (BY_PRIORITY, BY_TIME):
            raise InvalidInput("a queue is read by priority (1) or by time (2)")
        if not 1 <= waiter.limit <= self._limits.max_batch:
            raise InvalidInput(f"take 1 to {self._limits.max_batch} messages")
        check_int32("a receiver", waiter.receiver)
        check_int32("a sender", waiter.sender)
        check_int32("a context", waiter.context)
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
        caller: Caller = NODE,
        is_stalled: Callable[[], bool] = never_stalled,
    ) -> Waiter:
        """Take by priority, like `take_soon`, for a reader that acknowledges. `done` gets a list of Leased;
        their messages stay in the store until they are settled or released."""
        deadline = self._loop.time() + wait
        return self._enter(
            Waiter(queue_id, receiver, 0, 0, BY_PRIORITY, limit, deadline, done, caller, True, is_stalled)
        )

    def _give_up(self, leased: Sequence[Leased]) -> None:
        """Release messages that were leased for a reader that has gone."""
        self.leases.give_up([one.lease_id for one in leased])

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
        caller: Caller = NODE,
        is_stalled: Callable[[], bool] = never_stalled,
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
            self._contexts.extend(row[0] for row in await self._store.query(CONTEXTS, CONTEXTS_AT_ONCE))
        return self._contexts.popleft()

    # Looking after

    async def create(self, name: str, *, caller: Caller = NODE) -> Queue:
        check_name("queue", name)
        try:
            rows = await self._store.call_once("create_queue", name)
        except asyncpg.UniqueViolationError:
            raise AlreadyExists(f"there is a queue {name!r} already") from None
        caller.log(log, "queue created", queue=name)
        return Queue(*rows[0])

    async def ensure(self, name: str, *, caller: Caller = NODE) -> Queue:
        """Return the queue of that name. Create it if it does not exist."""
        try:
            return await self.names.find(name)
        except NoSuchQueue:
            with contextlib.suppress(AlreadyExists):
                await self.create(name, caller=caller)
            # Not from `names`: another caller's look-up that began earlier would not find the queue.
            return await self.find(name)

    async def find(self, name: str) -> Queue:
        check_name("queue", name)
        rows = await self._store.call("get_queue_id", name)
        if not rows:
            raise NoSuchQueue(f"there is no queue {name!r}")
        return Queue(*rows[0])

    async def find_by_id(self, queue_id: int) -> Queue:
        check_int32("a queue id", queue_id)
        rows = await self._store.call("get_queue_name", queue_id)
        if not rows:
            raise NoSuchQueue(f"there is no queue {queue_id}")
        return Queue(*rows[0])

    async def all(self) -> list[Queue]:
        return [Queue(*row) for row in await self._store.call("list_queues")]

    async def active(self, client_id: int) -> list[Queue]:
        """List the queues that have messages for this client."""
        return [Queue(*row) for row in await self._store.call("get_active_queues", client_id)]

    async def info(self, names: Sequence[str] | None = None) -> list[QueueInfo]:
        """Return the queues of those names, or all, with depth and oldest message."""
        return [QueueInfo(*row) for row in await self._store.query(DESCRIBE, names)]

    async def browse(self, queue_id: int, *, after: int = 0, limit: int = 100) -> list[Message]:
        """List messages of a queue, oldest first, without taking them. Large messages make the list shorter
        than the limit, but never empty."""
        check_int64("a message id", after)
        limit = min(limit, self._limits.max_batch)
        rows = await self._store.query(BROWSE, queue_id, after, limit, BROWSE_BYTES)
        return [Message(*row) for row in rows]

    async def purge(self, queue_id: int, *, caller: Caller = NODE) -> int:
        removed: int = (await self._store.call_once("purge_queues", [queue_id]))[0][0]
        caller.log(log, "queue purged", queue_id=queue_id, messages=removed)
        return removed

    async def delete(self, queue_id: int, *, caller: Caller = NODE) -> None:
        rows = await self._store.call_once("delete_queue", queue_id)
        self.names.forget_all()
        if rows[0][0] is None:
            raise NoSuchQueue(f"there is no queue {queue_id}")
        caller.log(log, "queue deleted", queue_id=queue_id)
