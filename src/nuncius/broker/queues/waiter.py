"""Waiting readers of a queue, and the line in which they wait."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Any

from nuncius.broker.caller import Caller
from nuncius.broker.queues.balance import Mark
from nuncius.store.calls.putting import Letter

FEW = 100  # as many as a client asks for together; a larger take would delay the puts of others


class Stage(IntEnum):
    """The stages of a reader's request. In the first three it is idle."""

    NEW = 0
    """It waits and has not looked, because there is nothing for it."""
    WAITING = 1
    """It has looked and found nothing."""
    STALLED = 2
    """Nothing was taken for it, because its client does not read."""
    LOOKING = 3
    """A take is under way."""
    LATE = 4
    """A take is under way that may have begun too early to see a message."""
    LEFT = 5
    """It has ended while a take was under way. Messages that the take finds go back."""
    ENDED = 6


class Event(IntEnum):
    """An event in the life of a reader's request."""

    LOOK = 0
    """A take begins."""
    NEWS = 1
    """The take may have begun too early to see a message."""
    NO_NEWS = 2
    """Another reader has taken that message."""
    LOOKED = 3
    """The take is over."""
    STALL = 4
    """The take is over, and nothing was taken because the client does not read."""
    END = 5
    """The request is answered, or its reader has gone."""


_NEXT: dict[Event, dict[Stage, Stage]] = {
    Event.LOOK: {
        Stage.NEW: Stage.LOOKING,
        Stage.WAITING: Stage.LOOKING,
        Stage.STALLED: Stage.LOOKING,
    },
    Event.NEWS: {Stage.LOOKING: Stage.LATE, Stage.LATE: Stage.LATE},
    Event.NO_NEWS: {Stage.LATE: Stage.LOOKING, Stage.LEFT: Stage.LEFT},
    Event.LOOKED: {Stage.LOOKING: Stage.WAITING, Stage.LATE: Stage.WAITING, Stage.LEFT: Stage.ENDED},
    Event.STALL: {Stage.LOOKING: Stage.STALLED, Stage.LATE: Stage.STALLED},
    Event.END: {
        Stage.NEW: Stage.ENDED,
        Stage.WAITING: Stage.ENDED,
        Stage.STALLED: Stage.ENDED,
        Stage.LOOKING: Stage.LEFT,
        Stage.LATE: Stage.LEFT,
    },
}


class Waiter:
    """One reader's request, from its first look to its answer."""

    __slots__ = (
        "caller",
        "context",
        "deadline",
        "done",
        "expected",
        "is_stalled",
        "leased",
        "letter",
        "limit",
        "mark",
        "mode",
        "queue_id",
        "receiver",
        "sender",
        "stage",
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
        caller: Caller,
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
        self.stage = Stage.NEW
        self.mark: Mark | None = None  # the counts before the take began
        self.letter: Letter | None = None  # the message that the take may not see
        self.expected: int | None = None  # its id, if known
        self.timer: asyncio.TimerHandle | None = None

    def now(self, event: Event) -> None:
        """Go to the next stage."""
        self.stage = _NEXT[event][self.stage]

    @property
    def is_idle(self) -> bool:
        """Return True if the request is open and no take for it is under way."""
        return self.stage <= Stage.STALLED

    @property
    def has_ended(self) -> bool:
        return self.stage >= Stage.LEFT

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
