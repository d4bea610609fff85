"""Waiting readers of a queue, and the line in which they wait."""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from nuncius.broker.queues.balance import Mark
from nuncius.store.calls.putting import Letter

FEW = 100  # as many as a client asks for together; a larger take would delay the puts of others


class Waiter:
    """One reader's request, from its first look to its answer."""

    __slots__ = (
        "caller",
        "context",
        "deadline",
        "done",
        "expected",
        "finished",
        "is_stalled",
        "leased",
        "letter",
        "limit",
        "looked",
        "looking",
        "mark",
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
        leased: bool,
        is_stalled: Callable[[], bool],
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
        self.is_stalled = is_stalled
        self.looked = False  # at least once
        self.looking = False  # a take is under way
        self.mark: Mark | None = None  # the counts before the take began
        self.missed = False  # something was put during the take, or there may be something for other reasons
        self.letter: Letter | None = None  # the message that was put
        self.expected: int | None = None  # its id, if known
        self.finished = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def travels(self) -> bool:
        """Return True if the take can share the transaction in which its message is put."""
        return not self.leased and self.limit <= FEW

    def fits(self, letter: Letter) -> bool:
        if self.context:
            return letter.context == self.context and letter.receiver == self.receiver
        return letter.receiver in (0, self.receiver) and self.sender in (0, letter.sender)


class WaitingLine:
    """Readers that wait at one queue, in order of arrival. A message for one receiver costs no look at the
    readers of others."""

    def __init__(self) -> None:
        self._all: dict[Waiter, None] = {}
        self._open: dict[Waiter, None] = {}  # for messages that are for anyone
        self._own: dict[int, dict[Waiter, None]] = {}  # by receiver, for messages that are for it

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[Waiter]:
        return iter(self._all)

    def add(self, waiter: Waiter) -> None:
        self._all[waiter] = None
        if not (waiter.context and waiter.receiver):
            self._open[waiter] = None
        if waiter.receiver:
            self._own.setdefault(waiter.receiver, {})[waiter] = None

    def remove(self, waiter: Waiter) -> None:
        self._all.pop(waiter, None)
        self._open.pop(waiter, None)
        own = self._own.get(waiter.receiver)
        if own is not None:
            own.pop(waiter, None)
            if not own:
                del self._own[waiter.receiver]

    def candidates(self, letter: Letter) -> Iterable[Waiter]:
        """Return the readers that this message may fit."""
        return self._own.get(letter.receiver, ()) if letter.receiver else self._open
