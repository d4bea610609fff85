"""Reliable publish/subscribe: publishers count their messages, subscribers name the id they want next.

A request for an id confirms everything below it, and the same request again gets the same answer. So for
exactly-once delivery each side remembers one number.
"""

import asyncio
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from nuncius.broker.background.listener import Listener
from nuncius.broker.background.signals import Signals
from nuncius.broker.caller import NODE, Caller
from nuncius.broker.delivery.by_id import IdRequest
from nuncius.broker.delivery.subscriptions import Subscriptions
from nuncius.broker.errors import InvalidInput
from nuncius.broker.limits import Limits, check_bodies, check_name, check_not_of_job, check_subscriber
from nuncius.store.calls.sequences import TurnCall, get, publish_in_turn
from nuncius.store.driver import Connection
from nuncius.store.queries import query
from nuncius.store.store import Store

SUBSCRIBE = query("subscriptions", "subscribe_by_id")

MAX_WAIT = 3600.0  # seconds
REMEMBERED_NAMES = 10_000
TOPIC_ID = attrgetter("topic_id")


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
        rows = await self._store.execute(SUBSCRIBE, topic, subscriber)
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
        request = IdRequest(self._getting, self._signals, topic, subscriber, entry_id, deadline, done, caller)
        request.look()
        return request
