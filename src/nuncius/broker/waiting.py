"""Waiting readers of queues.

A take that finds nothing waits here. A put wakes the first reader whom its message fits, and only that one:
a thousand readers of a queue do not all run for one message. News from other nodes say only which queue
has something, so they wake everybody who waits for it.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from nuncius.broker.errors import NoSuchQueue
from nuncius.store.putting import Letter, MissingQueues
from nuncius.store.store import Store
from nuncius.store.taking import Leased, Message, TakeCall, Taker


class Waiter:
    """One reader's request, from its first look to its answer."""

    __slots__ = (
        "caller",
        "context",
        "deadline",
        "done",
        "finished",
        "leased",
        "limit",
        "looking",
        "missed",
        "mode",
        "queue_id",
        "receiver",
        "sender",
        "timer",
    )

    def __init__(
        self,
        queue_id: int,
        receiver: int,
        sender: int,
        context: int,
        mode: int,
        limit: int,
        deadline: float,
        done: Callable[[Any], None],
        caller: Hashable,
        leased: bool = False,
    ) -> None:
        self.queue_id = queue_id
        self.receiver = receiver
        self.sender = sender
        self.context = context
        self.mode = mode
        self.limit = limit
        self.deadline = deadline
        self.done = done
        self.caller = caller
        self.leased = leased  # the reader acknowledges what it gets
        self.looking = False  # a take is under way
        self.missed = False  # something was put while it was
        self.finished = False
        self.timer: asyncio.TimerHandle | None = None

    def fits(self, letter: Letter) -> bool:
        if self.context:
            return letter.context == self.context and letter.receiver == self.receiver
        return letter.receiver in (0, self.receiver) and self.sender in (0, letter.sender)


class WaitingRoom:
    def __init__(
        self,
        store: Store,
        leaser: Taker,
        put_back: Callable[[Sequence[Message]], None],
        give_up: Callable[[Sequence[Leased]], None],
    ) -> None:
        self._taking = store.combiner("take", Taker().take)
        self._leasing = store.combiner("lease", leaser.take)
        self._put_back = put_back
        self._give_up = give_up
        self._waiters: dict[int, dict[Waiter, None]] = {}  # by queue, in order of arrival

    def enter(self, waiter: Waiter) -> None:
        self._waiters.setdefault(waiter.queue_id, {})[waiter] = None
        self._look(waiter)

    def leave(self, waiter: Waiter) -> None:
        """The reader has gone away: it must not get a message any more."""
        if not waiter.finished:
            self._finish(waiter)

    def arrived(self, queue_id: int, letters: Sequence[Letter]) -> None:
        """These were put into the queue by this node."""
        waiters = self._waiters.get(queue_id)
        if not waiters:
            return
        for letter in letters:
            for waiter in waiters:
                if waiter.fits(letter) and not waiter.missed:
                    self._wake(waiter)
                    break

    def look_again(self, queue_id: int | None) -> None:
        """Something may have come into this queue, or into any."""
        queues = list(self._waiters) if queue_id is None else [queue_id]
        for queue in queues:
            for waiter in list(self._waiters.get(queue, ())):
                self._wake(waiter)

    def _wake(self, waiter: Waiter) -> None:
        if waiter.looking:
            waiter.missed = True
        else:
            self._look(waiter)

    def _look(self, waiter: Waiter) -> None:
        waiter.looking = True
        waiter.missed = False
        combiner = self._leasing if waiter.leased else self._taking
        combiner.submit(
            TakeCall(
                partial(self._looked, waiter),
                waiter.caller,
                waiter.queue_id,
                waiter.receiver,
                waiter.sender,
                waiter.context,
                waiter.mode,
                waiter.limit,
                leased=waiter.leased,
            )
        )

    def _looked(self, waiter: Waiter, result: Any) -> None:
        waiter.looking = False
        if isinstance(result, MissingQueues):
            result = NoSuchQueue(f"there is no queue {waiter.queue_id}")
        if waiter.finished:
            if result and not isinstance(result, Exception):
                (self._give_up if waiter.leased else self._put_back)(result)
            if waiter.missed:
                self.look_again(waiter.queue_id)  # somebody else has to answer the call
            return
        if result or isinstance(result, Exception):
            passed_by = waiter.missed
            self._finish(waiter)
            if passed_by:
                # It was called for one message and got another; that one is somebody else's now.
                self.look_again(waiter.queue_id)
            waiter.done(result)
        elif waiter.missed:
            self._look(waiter)
        else:
            self._wait(waiter)

    def _wait(self, waiter: Waiter) -> None:
        if waiter.timer is not None:
            return
        loop = asyncio.get_running_loop()
        if waiter.deadline <= loop.time():
            self._time_out(waiter)
        else:
            waiter.timer = loop.call_at(waiter.deadline, self._time_out, waiter)

    def _time_out(self, waiter: Waiter) -> None:
        if waiter.looking:
            # The look that is under way has the last word.
            waiter.deadline = 0.0
            waiter.timer = None
        elif not waiter.finished:
            self._finish(waiter)
            waiter.done([])

    def _finish(self, waiter: Waiter) -> None:
        waiter.finished = True
        if waiter.timer is not None:
            waiter.timer.cancel()
        waiters = self._waiters.get(waiter.queue_id)
        if waiters is not None:
            waiters.pop(waiter, None)
            if not waiters:
                del self._waiters[waiter.queue_id]
