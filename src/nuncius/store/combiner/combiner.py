"""The combiner: while one call is in flight, collect the next.

One commit costs the same for one message as for a thousand. So calls that arrive while the previous batch
is on its way to PostgreSQL are put together and sent as the next batch. No call waits for a timer: with one
caller a batch is one call, with a thousand it is a thousand.

Calls do not fail because of others in their batch:
* A call that PostgreSQL refuses is found by halving the batch, and fails alone.
* A call whose queue or topic (or table) is locked by a long transaction ("busy"), or that was prepared with
  outdated knowledge ("stale"), leaves the batch for a detour: a temporary lane for its key alone, on which
  it can wait. All later calls with that key follow it there, in order.
* When the connection breaks, repeatable calls are repeated, and the others get OutcomeUnknown.
"""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from enum import Enum
from typing import Any, Generic, TypeVar

import asyncpg

from nuncius.store.combiner.lane import Lane
from nuncius.store.connecting import CONNECTION_ERRORS, TRANSIENT_ERRORS
from nuncius.store.driver import Connection
from nuncius.store.errors import CallFailed, OutcomeUnknown, StoreUnavailable

log = logging.getLogger(__name__)

MAX_ROWS = 2000
MAX_BYTES = 8 << 20
MAX_DETOURS = 8
SPLIT_ROWS = 32


class Detour(Enum):
    """Results for calls that could not be carried out now: they are tried again on a detour."""

    BUSY = "busy"
    STALE = "stale"


class Call:
    """One caller's share of a batch. `done` is called once, with a result or an exception."""

    __slots__ = ("caller", "done", "key", "repeatable", "rows", "size")

    def __init__(
        self,
        done: Callable[[Any], None],
        caller: Hashable,
        key: Hashable,
        rows: int,
        size: int,
        repeatable: bool,
    ) -> None:
        self.done = done
        self.caller: Any = caller  # callers take turns when not all calls fit into a batch
        self.key = key  # calls with the same key stay in order
        self.rows = rows
        self.size = size
        self.repeatable = repeatable


C = TypeVar("C", bound=Call)

# Carries out a batch; the flag says whether to wait for locks. Returns for each call a result, an exception,
# or a Detour.
Execute = Callable[[Connection, Sequence[C], bool], Awaitable[Sequence[Any]]]

# Called with the seconds a batch took, its calls and their results.
Observe = Callable[[float, Sequence[Any], Sequence[Any]], None]


def not_observed(seconds: float, calls: Sequence[Any], results: Sequence[Any]) -> None:
    """Do nothing after a batch."""


class Combiner(Generic[C]):
    def __init__(
        self,
        execute: Execute[C],
        new_lane: Callable[[bool], Lane],
        *,
        refresh: Callable[[Sequence[C]], Awaitable[None]] | None = None,
        ahead: Callable[[Sequence[C]], None] | None = None,
        order: Callable[[C], int] | None = None,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        observe: Observe = not_observed,
    ) -> None:
        self._execute = execute
        self._observe = observe
        self._new_lane = new_lane
        self._lane = new_lane(False)
        self._refresh = refresh
        self._ahead = ahead
        self._order = order  # sort key of the calls in a batch
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        # By caller. A plain dict would walk over all removed items to find its first one.
        self._waiting: OrderedDict[Hashable, deque[C]] = OrderedDict()
        self._detours: dict[Hashable, deque[C]] = {}  # by key
        self._detour_slots = asyncio.Semaphore(MAX_DETOURS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._carried_out: list[tuple[float, Sequence[C], Sequence[Any]]] = []  # batches not observed yet
        self._rows = 0  # waiting
        self._running = False
        self.batches = 0
        """Number of batches so far."""
        self.rows = 0
        """Number of rows in them."""

    def submit(self, call: C) -> None:
        """Add the call to the next batch."""
        queue = self._waiting.get(call.caller)
        if queue is None:
            self._waiting[call.caller] = deque((call,))
        else:
            queue.append(call)
        self._rows += call.rows
        if not self._running:
            self._running = True
            self._start(self._run())

    async def drain(self) -> None:
        """Wait until all submitted calls are answered."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        await self.drain()
        await self._lane.close()

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        # Callers that all wait for one batch all submit the next calls together, and the node would be idle
        # while PostgreSQL works. So a batch is at most half of all rows that wait or are about to come back:
        # one half is prepared and answered while the other is stored.
        back = 0  # rows of the calls that are answered next
        answers: list[tuple[C, Any]] = []
        upcoming: list[C] = []
        try:
            while upcoming or self._waiting:
                half = max(SPLIT_ROWS, (self._rows + back + 1) // 2)
                batch = upcoming or self._next_batch(min(half, self._max_rows))
                upcoming = []
                back = sum([call.rows for call in batch])
                if not answers:
                    answers = await self._carry_out(self._lane, batch, False)
                    continue
                under_way = asyncio.ensure_future(self._carry_out(self._lane, batch, False))
                await asyncio.sleep(0)  # send this batch before the last one is answered
                self._answer(answers)
                answers = []
                if self._ahead and self._waiting and self._rows >= back:
                    # All callers are back already: prepare the next batch while PostgreSQL works.
                    upcoming = self._next_batch(self._max_rows)
                    with contextlib.suppress(Exception):  # a fault shows again when the batch is sent
                        self._ahead(upcoming)
                answers = await under_way
        finally:
            self._running = False
            self._answer(answers)

    def _next_batch(self, max_rows: int) -> list[C]:
        """Take calls from the callers in turn, from each its fair share, until the batch is full."""
        batch: list[C] = []
        rows = size = 0
        waiting = self._waiting
        share = max(1, max_rows // len(waiting))
        while waiting and rows < max_rows and size < self._max_bytes:
            caller, queue = waiting.popitem(last=False)
            end = rows + share
            while queue and rows < end and size < self._max_bytes:
                call = queue.popleft()
                self._rows -= call.rows
                if self._detours and call.key in self._detours:
                    self._detours[call.key].append(call)
                    continue
                batch.append(call)
                rows += call.rows
                size += call.size
            if queue:
                waiting[caller] = queue
        if self._order is not None:
            batch.sort(key=self._order)
        self.batches += 1
        self.rows += rows
        return batch

    async def _carry_out(self, lane: Lane, batch: Sequence[C], wait: bool) -> list[tuple[C, Any]]:
        """Store the batch and return the results, for `_answer`. Detours begin here, before the next batch
        is made up, so that no later call overtakes them."""
        answers: list[tuple[C, Any]] = []
        lost: OutcomeUnknown | None = None  # set once the rest of the batch may have been carried out
        while batch := self._not_detoured(batch, wait):
            try:
                connection = lane.live
                if connection is None or connection.is_closed():
                    connection = await lane.connection()
            except StoreUnavailable as error:
                answers += [(call, lost or error) for call in batch]
                break
            begin = time.perf_counter()
            try:
                results = await self._execute(connection, batch, wait)
            except asyncpg.ReadOnlySQLTransactionError:
                lane.discard()  # nothing was done; the next connection is to a server that accepts writes
            except CONNECTION_ERRORS as error:
                lane.discard()
                lost = OutcomeUnknown(f"the connection to the store broke during the call ({error})")
                answers += [(call, lost) for call in batch if not call.repeatable]
                batch = [call for call in batch if call.repeatable]
            except TRANSIENT_ERRORS:
                continue
            except asyncpg.LockNotAvailableError:
                # Not a lock of ours (those answer "busy"): another session has locked a table.
                self._divert(batch, wait)
                break
            except (asyncpg.PostgresError, ValueError, TypeError, OverflowError) as error:
                # The transaction was rolled back (or never sent: asyncpg could not encode a value).
                if len(batch) == 1:
                    answers.append((batch[0], CallFailed(str(error))))
                    break
                middle = len(batch) // 2
                answers += await self._carry_out(lane, batch[:middle], wait)
                batch = batch[middle:]
            except Exception as error:
                log.exception("a batch failed by a fault of ours")
                fault = OutcomeUnknown(f"a fault of the node ({error!r})")
                answers += [(call, fault) for call in batch]
                break
            else:
                self._carried_out.append((time.perf_counter() - begin, batch, results))
                answers += self._not_diverted(batch, results, wait)
                break
        return answers

    def _not_diverted(self, batch: Sequence[C], results: Sequence[Any], wait: bool) -> list[tuple[C, Any]]:
        """Return the results to answer. Start detours for the other calls."""
        answers = list(zip(batch, results, strict=True))
        if Detour in map(type, results):
            self._divert([call for call, result in answers if isinstance(result, Detour)], wait)
            answers = [(call, result) for call, result in answers if not isinstance(result, Detour)]
        return answers

    def _not_detoured(self, batch: Sequence[C], wait: bool) -> Sequence[C]:
        """Return the calls whose keys are not on a detour by now. The others follow their keys."""
        if wait or not self._detours:
            return batch
        here = []
        for call in batch:
            if call.key in self._detours:
                self._detours[call.key].append(call)
            else:
                here.append(call)
        return here

    def _answer(self, answers: Sequence[tuple[C, Any]]) -> None:
        carried_out, self._carried_out = self._carried_out, []
        for call, result in answers:
            try:
                call.done(result)
            except Exception:
                log.exception("a caller failed on its answer")
        for seconds, calls, results in carried_out:
            try:
                self._observe(seconds, calls, results)
            except Exception:
                log.exception("a batch could not be counted")

    def _divert(self, calls: Sequence[C], wait: bool) -> None:
        """Start detours for calls. Those on a detour already are put first there again."""
        if wait:
            self._detours[calls[0].key].extendleft(reversed(calls))
            return
        for call in calls:
            queue = self._detours.get(call.key)
            if queue is None:
                self._detours[call.key] = deque((call,))
                self._start(self._detour(call.key))
            else:
                queue.append(call)

    async def _detour(self, key: Hashable) -> None:
        queue = self._detours[key]
        async with self._detour_slots:
            lane = self._new_lane(True)
            try:
                while queue:
                    batch = [queue.popleft() for _ in range(min(len(queue), self._max_rows))]
                    try:
                        if self._refresh is not None:
                            await self._refresh(batch)
                    except Exception as error:
                        self._answer([(call, error) for call in batch])
                    else:
                        self._answer(await self._carry_out(lane, batch, True))
            finally:
                del self._detours[key]
                await lane.close()
