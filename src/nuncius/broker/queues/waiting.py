"""Waiting readers of queues.

A take that finds nothing waits here, and so does one that would find nothing if it looked. A put calls only
the first reader that its message fits: a thousand readers of a queue do not all run for one message. The
reader is called when the message is sent to the store, and its take mostly travels in the same batch; if it
comes too early, it is called again when the message is stored. Notifications from other nodes say only which
queue has something, so they wake all readers of that queue. A stalled reader (its client does not read what
it got before) is passed over until it reads again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

from nuncius.broker.errors import NoSuchQueue
from nuncius.broker.queues.balance import Balance
from nuncius.broker.queues.waiter import Waiter, WaitingLine
from nuncius.store.calls.exchanging import ExchangeCall
from nuncius.store.calls.putting import Letter, MissingQueues
from nuncius.store.calls.taking import Again, Leased, Message, TakeCall
from nuncius.store.combiner.combiner import Combiner


class WaitingRoom:
    def __init__(
        self,
        taking: Combiner[ExchangeCall],
        taking_many: Combiner[TakeCall],
        leasing: Combiner[TakeCall],
        put_back: Callable[[Sequence[Message]], None],
        give_up: Callable[[Sequence[Leased]], None],
    ) -> None:
        self._taking = taking
        self._taking_many = taking_many
        self._leasing = leasing
        self._put_back = put_back
        self._give_up = give_up
        self._waiters: dict[int, WaitingLine] = {}  # by queue
        self._expected: dict[int, Waiter] = {}  # the reader that looks for a message, by message id
        self._balance = Balance()
        self._loop = asyncio.get_running_loop()  # kept: asking for it costs a system call on Python 3.11

    def enter(self, waiter: Waiter) -> None:
        line = self._waiters.get(waiter.queue_id)
        if line is None:
            line = self._waiters[waiter.queue_id] = WaitingLine()
        line.add(waiter)
        if self._balance.is_nothing(waiter.queue_id, waiter.receiver, waiter.context):
            self._wait(waiter)
        else:
            self._look(waiter)

    def leave(self, waiter: Waiter) -> None:
        """End the wait of a reader that has gone, so that it gets no message any more."""
        if not waiter.finished:
            self._finish(waiter)

    def waiting_alone(self) -> Counter[int]:
        """Count the waiting requests that belong to no lasting connection, by queue."""
        return Counter(
            queue_id for queue_id, line in self._waiters.items() for each in line if each.caller is None
        )

    def coming(self, queue_id: int, letters: Sequence[Letter]) -> list[Waiter | None]:
        """Call readers for messages that are on their way into the queue. Return the called readers."""
        self._balance.asked(queue_id, letters)
        line = self._waiters.get(queue_id)
        return [self._call(line, letter) for letter in letters] if line is not None else []

    def _call(self, line: WaitingLine, letter: Letter) -> Waiter | None:
        """Call the first reader that can look at once. None if its take cannot travel with the put."""
        for waiter in line.candidates(letter):
            if not waiter.looking and waiter.fits(letter) and not waiter.is_stalled():
                if not waiter.travels:
                    return None
                self._look(waiter)
                return waiter
        return None

    def arrived(
        self,
        queue_id: int,
        letters: Sequence[Letter],
        ids: Sequence[int] = (),
        called: Sequence[Waiter | None] = (),
    ) -> None:
        """Wake readers for messages that this node has put. `called` are the readers called before."""
        self._balance.put(queue_id, letters)
        line = self._waiters.get(queue_id)
        if line is not None:
            for letter, message_id, waiter in zip_longest(letters, ids, called):
                if waiter is not None and waiter.looking and not waiter.missed:
                    self._expect(waiter, letter, message_id)
                else:
                    self._wake_one(line, letter, message_id)

    def _wake_one(self, line: WaitingLine, letter: Letter, message_id: int | None = None) -> None:
        """Wake the first reader that can look at once, else the first that looks and has missed nothing."""
        looking = None
        for waiter in line.candidates(letter):
            if not waiter.missed and waiter.fits(letter):
                if not waiter.looking:
                    self._look(waiter)
                    return
                looking = looking or waiter
        if looking is not None:
            self._expect(looking, letter, message_id)

    def _expect(self, waiter: Waiter, letter: Letter, message_id: int | None) -> None:
        """Note that the reader's look, which is under way, may have begun too early to see this message."""
        waiter.missed = True
        waiter.letter = letter
        if message_id is not None:
            waiter.expected = message_id
            self._expected[message_id] = waiter

    def _seen(self, waiter: Waiter, result: Any) -> None:
        """Clear the notes that a finished look has settled: a message it took was missed by no reader."""
        if self._expected and type(result) is list and not waiter.leased:
            for message in result:
                other = self._expected.pop(message.message_id, None)
                if other is not None:
                    other.missed = False
                    other.letter = other.expected = None
        self._expect_nothing(waiter)

    def _expect_nothing(self, waiter: Waiter) -> None:
        if waiter.expected is not None:
            del self._expected[waiter.expected]
            waiter.expected = None

    def _pass_by(self, waiter: Waiter) -> None:
        """Wake the next reader for the message that this one was called for while it looked."""
        line = self._waiters.get(waiter.queue_id)
        if line is not None and waiter.letter is not None:
            self._wake_one(line, waiter.letter)

    def look_again(self, queue_id: int | None) -> None:
        """Wake all readers of a queue that may have new messages; None: of all queues."""
        self._balance.forget(queue_id)
        queues = list(self._waiters) if queue_id is None else [queue_id]
        for queue in queues:
            for waiter in list(self._waiters.get(queue, ())):
                self._wake(waiter)

    def resume(self, waiter: Waiter) -> None:
        """Let a reader that was stalled look again."""
        if waiter.missed and not (waiter.looking or waiter.finished):
            self._look(waiter)

    def _pass_on(self, queue_id: int) -> None:
        """Wake all readers that are not stalled, in place of one that is."""
        for waiter in list(self._waiters.get(queue_id, ())):
            if not waiter.is_stalled():
                self._wake(waiter)

    def _wake(self, waiter: Waiter) -> None:
        if waiter.looking:
            waiter.missed = True
            self._expect_nothing(waiter)  # even if another reader takes that message, there may be others
        else:
            self._look(waiter)

    def _look(self, waiter: Waiter) -> None:
        waiter.looking = waiter.looked = True
        waiter.missed = False
        waiter.letter = None
        waiter.mark = self._balance.mark(waiter.queue_id, waiter.receiver)
        call = TakeCall(
            partial(self._looked, waiter),
            waiter.caller,
            waiter.queue_id,
            waiter.receiver,
            waiter.sender,
            waiter.context,
            waiter.mode,
            waiter.limit,
            leased=waiter.leased,
            is_stalled=waiter.is_stalled,
        )
        if waiter.travels:
            self._taking.submit(call)
        else:
            (self._leasing if waiter.leased else self._taking_many).submit(call)

    def _looked(self, waiter: Waiter, result: Any) -> None:
        waiter.looking = False
        self._seen(waiter, result)
        if isinstance(result, MissingQueues):
            result = NoSuchQueue(f"there is no queue {waiter.queue_id}")
        elif result is Again.STALLED and not waiter.finished:
            waiter.missed = True
            self._pass_on(waiter.queue_id)  # it may have been called for a message
            return
        elif isinstance(result, Again):
            waiter.missed = True
            result = []
        elif not isinstance(result, Exception):
            self._count(waiter, result)
        if waiter.finished:
            if result and not isinstance(result, Exception):
                (self._give_up if waiter.leased else self._put_back)(result)
            self._pass_by(waiter)
            return
        if result or isinstance(result, Exception):
            self._finish(waiter)
            self._pass_by(waiter)
            waiter.done(result)
        elif waiter.missed:
            self._look(waiter)
        else:
            self._wait(waiter)

    def _count(self, waiter: Waiter, result: Sequence[Any]) -> None:
        """Update the counts by the result of a look."""
        if result:
            messages = [one.message for one in result] if waiter.leased else result
            self._balance.taken(waiter.queue_id, messages)
        elif not (waiter.sender or waiter.context) and waiter.mark is not None:
            self._balance.found_nothing(waiter.queue_id, waiter.receiver, waiter.mark)

    def _wait(self, waiter: Waiter) -> None:
        if waiter.timer is not None:
            return
        if waiter.deadline <= self._loop.time():
            self._time_out(waiter)
        else:
            waiter.timer = self._loop.call_at(waiter.deadline, self._time_out, waiter)

    def _time_out(self, waiter: Waiter) -> None:
        if waiter.looking or not (waiter.looked or waiter.finished):
            # The result of a look under way decides; and a reader gets "nothing" only after a look.
            waiter.deadline = 0.0
            waiter.timer = None
            if not waiter.looking:
                self._look(waiter)
        elif not waiter.finished:
            self._finish(waiter)
            waiter.done([])

    def _finish(self, waiter: Waiter) -> None:
        waiter.finished = True
        if waiter.timer is not None:
            waiter.timer.cancel()
        line = self._waiters.get(waiter.queue_id)
        if line is not None:
            line.remove(waiter)
            if not line:
                del self._waiters[waiter.queue_id]
