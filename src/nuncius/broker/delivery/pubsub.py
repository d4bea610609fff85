"""Reliable publish/subscribe: publishers count their messages, subscribers name the id they want next.

A request for an id confirms everything below it, and the same request again gets the same answer. So for
exactly-once delivery each side remembers one number.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from nuncius.broker.background.listener import Listener
from nuncius.broker.background.signals import Signals
from nuncius.broker.caller import NODE, Caller
from nuncius.broker.delivery.subscriptions import Subscriptions
from nuncius.broker.errors import InvalidInput, NoSuchSubscription
from nuncius.broker.limits import Limits, check_bodies, check_name, check_not_of_job, check_subscriber
from nuncius.store.calls.sequences import (
    NOT_SUBSCRIBED,
    TOO_MUCH,
    FoundEntry,
    GetCall,
    TurnCall,
    get,
    publish_in_turn,
)
from nuncius.store.driver import Connection
from nuncius.store.store import Store

MAX_WAIT = 3600.0  # seconds
REMEMBERED_NAMES = 10_000
TOPIC_ID = attrgetter("topic_id")


class IdRequest:
    """A subscriber's request for an id, from its first look to its answer."""

    __slots__ = (
        "caller",
        "deadline",
        "done",
        "finished",
        "id",
        "looking",
        "missed",
        "subscriber",
        "timer",
        "told",
        "topic",
        "topic_id",
        "wake",
    )

    def __init__(
        self,
        topic: str,
        subscriber: str,
        entry_id: int,
        deadline: float | None,
        done: Callable[[Any], None],
        caller: Caller,
    ) -> None:
        self.topic = topic
        self.subscriber = subscriber
        self.id = entry_id
        self.deadline = deadline  # None: do not wait
        self.done = done
        self.caller = caller
        self.looking = False
        self.missed = False  # the topic got new entries during the look
        self.finished = False
        self.topic_id: int | None = None  # of the topic that it watches
        self.wake: Callable[[], None] | None = None  # called for new entries of the topic
        self.told: FoundEntry | None = None  # result of the last look
        self.timer: asyncio.TimerHandle | None = None


class PubSub:
    def __init__(
        self,
        store: Store,
        subscriptions: Subscriptions,
        signals: Signals,
        listener: Listener,
        limits: Limits,
    ) -> None:
        self._store = store
        self._subscriptions = subscriptions
        self._signals = signals
        self._listener = listener
        self._limits = limits
        self._publishing = store.combiner("publish in turn", self._publish_batch)
        self._getting = store.combiner("get", get)
        self._allowed: set[str] = set()

    def _check(self, kind: str, name: str) -> None:
        """Check a name, unless it has been checked recently."""
        if name not in self._allowed:
            check_name(kind, name)
            if len(self._allowed) >= REMEMBERED_NAMES:
                self._allowed.clear()
            self._allowed.add(name)

    # Publishing

    def put_soon(
        self,
        topic: str,
        publisher: str,
        count: int,
        body: bytes,
        done: Callable[[Any], None],
        *,
        caller: Caller = NODE,
    ) -> None:
        """Publish a message if it is the next one of this publisher in this topic. `done` gets a Turn or an
        exception. The topic is created if it does not exist."""
        self._check("topic", topic)
        self._check("publisher", publisher)
        check_bodies(self._limits, (body,))
        self._publishing.submit(TurnCall(done, caller, topic, publisher, count, body))

    async def _publish_batch(
        self, connection: Connection, calls: Sequence[TurnCall], wait: bool
    ) -> list[Any]:
        results = await publish_in_turn(connection, calls, wait)
        self._listener.arrived(set(map(TOPIC_ID, calls)))
        return results

    # Subscriptions

    async def subscribe(self, topic: str, subscriber: str) -> tuple[bool, int]:
        """Subscribe from the latest message on. Return True if the subscription is new, and the id of the
        last message that the subscriber has."""
        check_name("topic", topic)
        check_subscriber(subscriber)
        rows = await self._store.execute(
            "select created, last_id from nuncius.subscribe_in_sequence($1, $2)", topic, subscriber
        )
        return rows[0][0], rows[0][1]

    async def unsubscribe(self, topic: str, subscriber: str) -> None:
        """End a subscription. Its pending messages are dropped."""
        check_name("topic", topic)
        check_name("subscriber", subscriber)
        await self._subscriptions.unsubscribe(topic, subscriber)

    # Getting

    def get_soon(
        self,
        topic: str,
        subscriber: str,
        entry_id: int,
        done: Callable[[Any], None],
        *,
        wait: float = 0.0,
        caller: Caller = NODE,
    ) -> IdRequest:
        """Get the entry of an id, and confirm everything below it. `done` gets a FoundEntry (without a
        body if there is no such entry, or none comes within the wait), None if the caller has to repeat the
        request because the batch was too large, or an exception."""
        self._check("topic", topic)
        self._check("subscriber", subscriber)
        check_not_of_job(subscriber)
        if not 0 <= wait <= MAX_WAIT:
            raise InvalidInput(f"wait up to {MAX_WAIT:g} seconds")
        deadline = asyncio.get_running_loop().time() + wait if wait else None
        request = IdRequest(topic, subscriber, entry_id, deadline, done, caller)
        self._look(request)
        return request

    def leave(self, request: IdRequest) -> None:
        """Answer a waiting request now, with its latest result."""
        if request.finished:
            return
        if request.looking:
            request.deadline = None  # that look is the last
        else:
            self._finish(request, request.told)

    def _look(self, request: IdRequest) -> None:
        request.looking = True
        request.missed = False
        done = partial(self._looked, request)
        self._getting.submit(GetCall(done, request.caller, request.topic, request.subscriber, request.id))

    def _looked(self, request: IdRequest, result: Any) -> None:
        request.looking = False
        if type(result) is FoundEntry:
            if result.body is None and request.deadline is not None:
                self._wait(request, result)
            else:
                self._finish(request, result)
        elif result == TOO_MUCH:
            self._finish(request, None)
        elif result == NOT_SUBSCRIBED:
            self._finish(
                request,
                NoSuchSubscription(f"{request.subscriber!r} is not subscribed to {request.topic!r}"),
            )
        else:
            self._finish(request, result)

    def _wait(self, request: IdRequest, told: FoundEntry) -> None:
        request.told = told
        loop = asyncio.get_running_loop()
        assert request.deadline is not None
        if request.deadline <= loop.time():
            self._finish(request, told)
        elif request.topic_id != told.topic_id:
            self._watch(request, told.topic_id)
            self._look(request)  # the entry may have arrived before the watch began
        elif request.missed:
            self._look(request)
        elif request.timer is None:
            request.timer = loop.call_at(request.deadline, self.leave, request)

    def _wake(self, request: IdRequest) -> None:
        if request.looking:
            request.missed = True
        else:
            self._look(request)

    def _watch(self, request: IdRequest, topic_id: int | None) -> None:
        if request.topic_id is not None and request.wake is not None:
            self._signals.unwatch(request.topic_id, request.wake)
        request.topic_id = topic_id
        if topic_id is not None:
            request.wake = partial(self._wake, request)
            self._signals.watch(topic_id, request.wake)

    def _finish(self, request: IdRequest, result: Any) -> None:
        request.finished = True
        if request.topic_id is not None:
            self._watch(request, None)
        if request.timer is not None:
            request.timer.cancel()
        request.done(result)
