"""Feeds: the report's distributor. Opens them, and knows who uses which subscription at this node."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from functools import partial
from weakref import WeakValueDictionary

from nuncius.broker.claims import Claims
from nuncius.broker.feed import Batch, Feed, Means, Settings
from nuncius.broker.limits import Limits
from nuncius.broker.listener import Listener
from nuncius.broker.signals import Signals
from nuncius.broker.subscriptions import Subscription, Subscriptions
from nuncius.broker.tails import Tails
from nuncius.store.acknowledging import Acknowledgement, Acknowledging, Noted, deliver
from nuncius.store.driver import Connection
from nuncius.store.errors import StoreError
from nuncius.store.store import Store

END = (
    "select nuncius.end_subscriptions(array(select subscription_id from nuncius.subscriptions"
    " join nuncius.topics using (topic_id) where topic_name = $1 and subscriber_name = $2), $3)"
)

_Names = tuple[str, str]  # topic, subscriber


class Feeds:
    def __init__(
        self,
        store: Store,
        subscriptions: Subscriptions,
        tails: Tails,
        signals: Signals,
        listener: Listener,
        limits: Limits,
    ) -> None:
        self._store = store
        self._subscriptions = subscriptions
        self._listener = listener
        self._acknowledging = Acknowledging(limits.retry_delay, limits.max_attempts)
        self._means = Means(
            store,
            tails,
            signals,
            store.combiner("deliver", deliver),
            store.combiner("acknowledge", self._acknowledging.acknowledge),
            limits.retry_delay,
        )
        self._feeds: set[Feed] = set()
        self._claims = Claims(store, listener)
        self._users: Counter[_Names] = Counter()  # feeds that are not durable, open or opening
        self._turns: WeakValueDictionary[_Names, asyncio.Lock] = WeakValueDictionary()

    async def open(
        self,
        topic: str,
        subscriber: str,
        push: Callable[[Batch], None],
        *,
        start: str = "latest",
        durable: bool = False,
        acknowledged: bool = False,
        prefetch: int = 1000,
        gate: AbstractAsyncContextManager[None] | None = None,
        caller: Hashable = None,
        ended: Callable[[Exception], None] | None = None,
    ) -> Feed:
        """Begins to push what comes for this subscriber. One that is not durable lives as long as the feed;
        one that is has one feed at a time, and an older one ends with TakenOver, at whichever node it is.
        Without acknowledgement what was pushed counts as received; with it, at most `prefetch` entries are
        outstanding. Each look for entries and their push go through the gate, if there is one. `ended`
        learns why a feed broke off."""
        settings = Settings(durable, acknowledged, max(1, prefetch), gate, caller)
        begin = partial(self._begin, push, settings, ended)
        if durable:
            return await self._begin_alone(
                await self._subscriptions.subscribe(topic, subscriber, start=start), begin
            )
        async with self._turn(topic, subscriber):
            self._users[topic, subscriber] += 1
            try:
                subscription = await self._subscriptions.subscribe(
                    topic, subscriber, start=start, holder=self._listener.holder
                )
                return await begin(subscription)
            except BaseException:  # also when nobody waits for the feed any more
                await self._leave(topic, subscriber)
                raise

    async def _begin_alone(
        self, subscription: Subscription, begin: Callable[[Subscription], Awaitable[Feed]]
    ) -> Feed:
        claimed = subscription.subscription_id
        async with self._claims.turn(claimed):
            try:
                await self._claims.take(claimed)
                feed = await begin(subscription)
            except BaseException:
                await self._claims.release(claimed)
                raise
            self._claims.keep(feed)
        return feed

    async def _begin(
        self,
        push: Callable[[Batch], None],
        settings: Settings,
        ended: Callable[[Exception], None] | None,
        subscription: Subscription,
    ) -> Feed:
        reader = await self._subscriptions.reader(subscription)
        feed = Feed(self._means, subscription, reader, push, settings, ended, self._closed)
        await feed.start()
        self._feeds.add(feed)
        return feed

    async def note_in(self, connection: Connection, said: list[Acknowledgement]) -> Noted:
        """Says these things as part of somebody's transaction, who settles them when it is committed."""
        return await self._acknowledging.note(connection, said) if said else Noted([], [])

    async def close(self) -> None:
        """The node ends."""
        await self._claims.close()
        await asyncio.gather(*(feed.close() for feed in self._feeds))

    async def _closed(self, feed: Feed) -> None:
        self._feeds.discard(feed)
        if feed.is_durable:
            await self._claims.leave(feed)
            return
        topic, subscriber = feed.subscription.topic.name, feed.subscription.subscriber
        async with self._turn(topic, subscriber):
            await self._leave(topic, subscriber)

    async def _leave(self, topic: str, subscriber: str) -> None:
        self._users[topic, subscriber] -= 1
        if self._users[topic, subscriber]:
            return
        del self._users[topic, subscriber]
        with contextlib.suppress(StoreError):  # else it ends with the node
            await self._store.query(END, topic, subscriber, self._listener.holder)

    def _turn(self, topic: str, subscriber: str) -> asyncio.Lock:
        """Who opens a feed does not find a subscription that is just being ended."""
        turn = self._turns.get((topic, subscriber))
        if turn is None:
            turn = self._turns[topic, subscriber] = asyncio.Lock()
        return turn
