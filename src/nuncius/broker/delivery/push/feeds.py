"""Feeds: the report's distributor. Opens feeds, and tracks the feeds of each subscription at this node."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from weakref import WeakValueDictionary

from nuncius.broker.background.listener import Listener
from nuncius.broker.caller import NODE, Caller
from nuncius.broker.delivery.push.claims import FeedClaims
from nuncius.broker.delivery.push.feed import Feed
from nuncius.broker.delivery.push.ordered_feeds import OrderedFeeds
from nuncius.broker.delivery.push.parts import FeedServices, FeedSettings, PushedSlice
from nuncius.broker.delivery.push.send_order import SendOrder
from nuncius.broker.delivery.subscriptions import Subscription, Subscriptions
from nuncius.broker.delivery.tails import Tails
from nuncius.broker.limits import Limits
from nuncius.broker.observe.consumers import Consumers, leave
from nuncius.store.calls.acknowledging import Acknowledgement, Acknowledging, Noted, deliver
from nuncius.store.driver import Connection
from nuncius.store.errors import StoreError
from nuncius.store.queries import query
from nuncius.store.store import Store

END = query("subscriptions", "end")

_Names = tuple[str, str]  # topic, subscriber


class Feeds:
    def __init__(
        self,
        store: Store,
        subscriptions: Subscriptions,
        tails: Tails,
        order: SendOrder,
        listener: Listener,
        limits: Limits,
    ) -> None:
        self._store = store
        self._subscriptions = subscriptions
        self._listener = listener
        self._acknowledging = Acknowledging(limits.retry_delay, limits.max_attempts)
        self._order = order
        self._services = FeedServices(
            store,
            tails,
            store.combiner("deliver", deliver),
            store.combiner("acknowledge", self._acknowledging.acknowledge),
            limits.retry_delay,
        )
        self.consumers = Consumers()
        """Where open feeds are counted."""
        self._feeds: set[Feed] = set()
        self._together: WeakValueDictionary[Caller, OrderedFeeds] = WeakValueDictionary()  # by caller
        self._claims = FeedClaims(store, listener)
        self._users: Counter[_Names] = Counter()  # feeds that are not durable, open or opening
        self._turns: WeakValueDictionary[_Names, asyncio.Lock] = WeakValueDictionary()

    async def open(
        self,
        topic: str,
        subscriber: str,
        push: Callable[[PushedSlice], None],
        *,
        start: str = "latest",
        durable: bool = False,
        acknowledged: bool = False,
        prefetch: int = 1000,
        gate: AbstractAsyncContextManager[None] | None = None,
        caller: Caller = NODE,
        ended: Callable[[Exception], None] | None = None,
    ) -> Feed:
        """Open a feed that pushes the subscriber's entries. A subscription that is not durable lives as long
        as the feed. A durable one has one feed at a time; an older feed, at any node, ends with TakenOver.
        Without acknowledgement pushed entries count as received; with it, at most `prefetch` entries are
        outstanding. Each look for entries and their push go through the gate, if there is one. `ended` gets
        the reason if the feed breaks off.

        All feeds of a caller together push the entries that this node stored in the order of storing."""
        together = self._together_with(caller)
        settings = FeedSettings(durable, acknowledged, max(1, prefetch), gate, caller, together)
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
            except BaseException:  # also when the caller was cancelled
                await self._leave(topic, subscriber)
                raise

    def _together_with(self, caller: Caller) -> OrderedFeeds:
        together = None if caller is NODE else self._together.get(caller)
        if together is None:
            together = OrderedFeeds(self._order)
            if caller is not NODE:
                self._together[caller] = together
        return together

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
        push: Callable[[PushedSlice], None],
        settings: FeedSettings,
        ended: Callable[[Exception], None] | None,
        subscription: Subscription,
    ) -> Feed:
        cursor = await self._subscriptions.cursor(subscription)
        feed = Feed(self._services, subscription, cursor, push, settings, ended, self._closed)
        await feed.start()
        self._feeds.add(feed)
        self.consumers.subscriptions[subscription.subscription_id] += 1
        return feed

    async def note_in(self, connection: Connection, said: list[Acknowledgement]) -> Noted:
        """Store acknowledgements in the caller's transaction. The caller settles them after its commit."""
        return await self._acknowledging.note(connection, said) if said else Noted([], [])

    async def close(self) -> None:
        """Close all feeds, when the node ends."""
        await self._claims.close()
        await asyncio.gather(*(feed.close() for feed in self._feeds))

    async def _closed(self, feed: Feed) -> None:
        if feed in self._feeds:
            self._feeds.remove(feed)
            leave(self.consumers.subscriptions, feed.subscription.subscription_id)
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
        """Return the lock under which subscriptions that are not durable are opened and ended."""
        turn = self._turns.get((topic, subscriber))
        if turn is None:
            turn = self._turns[topic, subscriber] = asyncio.Lock()
        return turn
