"""The policy of subscribers that name the id they want next. A request confirms everything below its id.

Ids are looked up with the entry and the confirmation, in one call of the store: no node trusts an older
catalogue, and an answer means that the confirmation is committed. So there is no cursor here.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nuncius.broker.background.signals import Signals
from nuncius.broker.caller import Caller
from nuncius.broker.errors import NoSuchSubscription
from nuncius.store.calls.sequences import NOT_SUBSCRIBED, TOO_MUCH, FoundEntry, GetCall
from nuncius.store.combiner.combiner import Combiner


@dataclass(slots=True, eq=False)
class IdRequest:
    """A subscriber's request for an id, from its first look to its answer."""

    _getting: Combiner[GetCall]
    _signals: Signals
    _topic: str
    _subscriber: str
    _id: int
    _deadline: float | None  # None: do not wait
    _done: Callable[[Any], None]
    _caller: Caller
    _is_looking: bool = False
    _is_missed: bool = False  # the topic got new entries during the look
    _is_finished: bool = False
    _watched: int | None = None  # the topic's id
    _told: FoundEntry | None = None  # result of the last look
    _timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        self._is_looking = True
        self._is_missed = False
        self._getting.submit(GetCall(self._looked, self._caller, self._topic, self._subscriber, self._id))

    def leave(self) -> None:
        """Answer a waiting request now, with its latest result."""
        if self._is_looking:
            self._deadline = None  # that look is the last
        elif not self._is_finished:
            self._finish(self._told)

    def _looked(self, result: Any) -> None:
        self._is_looking = False
        if type(result) is FoundEntry:
            if result.body is None and self._deadline is not None:
                self._wait(result, self._deadline)
            else:
                self._finish(result)
        elif result == TOO_MUCH:
            self._finish(None)
        elif result == NOT_SUBSCRIBED:
            self._finish(NoSuchSubscription(f"{self._subscriber!r} is not subscribed to {self._topic!r}"))
        else:
            self._finish(result)

    def _wait(self, told: FoundEntry, deadline: float) -> None:
        self._told = told
        loop = asyncio.get_running_loop()
        if deadline <= loop.time():
            self._finish(told)
        elif self._watched != told.topic_id:
            self._watch(told.topic_id)
            self.look()  # the entry may have arrived before the watch began
        elif self._is_missed:
            self.look()
        elif self._timer is None:
            self._timer = loop.call_at(deadline, self.leave)

    def _wake(self) -> None:
        if self._is_looking:
            self._is_missed = True
        else:
            self.look()

    def _watch(self, topic_id: int | None) -> None:
        if self._watched is not None:
            self._signals.unwatch(self._watched, self._wake)
        self._watched = topic_id
        if topic_id is not None:
            self._signals.watch(topic_id, self._wake)

    def _finish(self, result: Any) -> None:
        self._is_finished = True
        if self._watched is not None:
            self._watch(None)
        if self._timer is not None:
            self._timer.cancel()
        self._done(result)
