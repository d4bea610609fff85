"""FeedClaims: a durable subscription has one feed at a time, and the latest one to open it has it.

A subscriber that has lost its connection reconnects before its old node has noticed. So the new feed does not
wait for the old one to end by itself: the old feed is closed, and stores its last acknowledgements first.
Between nodes the store decides which node has a subscription. The owner is notified when another wants it.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from weakref import WeakValueDictionary

from nuncius.broker.background.listener import Listener
from nuncius.broker.background.signals import news_before
from nuncius.broker.background.tasks import BackgroundWork
from nuncius.broker.delivery.push.feed import Feed
from nuncius.store.errors import StoreError
from nuncius.store.queries import query
from nuncius.store.store import Store

CLAIM = query("feeds", "claim")
RELEASE = query("feeds", "release")
WANTED = query("feeds", "wanted")
PATIENCE = 10.0  # seconds that another node gets to make way
AGAIN = 1.0  # seconds between two requests to it


class FeedClaims:
    def __init__(self, store: Store, listener: Listener) -> None:
        self._store = store
        self._listener = listener
        self._here: dict[int, Feed] = {}  # by subscription
        self._free: dict[int, asyncio.Event] = {}  # by subscription that this node waits for
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._background = BackgroundWork()
        self._is_over = False
        listener.on_wanted = self._wanted
        listener.on_free = self._freed

    def turn(self, subscription_id: int) -> asyncio.Lock:
        """Return the lock to hold from before `take` until after `keep`."""
        turn = self._turns.get(subscription_id)
        if turn is None:
            turn = self._turns[subscription_id] = asyncio.Lock()
        return turn

    async def take(self, subscription_id: int) -> None:
        """Claim a subscription. Return when no other feed reads it any more."""
        before = self._here.pop(subscription_id, None)
        if before is not None:
            await before.make_way()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        free = self._free[subscription_id] = asyncio.Event()
        try:
            while not await self._claim(subscription_id, force=loop.time() >= deadline):
                await news_before(loop.time() + AGAIN, free)
                free.clear()
        finally:
            del self._free[subscription_id]

    def keep(self, feed: Feed) -> None:
        """Record the feed that reads the subscription now."""
        self._here[feed.subscription.subscription_id] = feed

    async def leave(self, feed: Feed) -> None:
        """Release the subscription of an ended feed, unless another feed has it by now."""
        subscription_id = feed.subscription.subscription_id
        if self._here.get(subscription_id) is feed:
            async with self.turn(subscription_id):
                if self._here.get(subscription_id) is feed:
                    del self._here[subscription_id]
                    await self.release(subscription_id)

    async def release(self, subscription_id: int) -> None:
        if not self._is_over:
            with contextlib.suppress(StoreError):  # else the claim is taken over, or ends with this node
                await self._store.query(RELEASE, subscription_id, self._listener.holder)

    async def close(self) -> None:
        """Stop: the claims of this node end with it."""
        self._is_over = True
        await self._background.drain()

    async def _claim(self, subscription_id: int, *, force: bool) -> bool:
        rows = await self._store.query(CLAIM, subscription_id, self._listener.holder, force)
        return bool(rows[0][0])

    # Notifications from other nodes

    def _freed(self, subscription_id: int) -> None:
        if subscription_id in self._free:
            self._free[subscription_id].set()

    def _wanted(self, subscription_id: int | None) -> None:
        """Make way if another node wants this subscription. None: check all, after missed notifications."""
        if subscription_id in self._here:
            self._background.start(self._make_way([subscription_id]))
        elif subscription_id is None and self._here:
            self._background.start(self._make_way(list(self._here)))

    async def _make_way(self, subscriptions: Sequence[int]) -> None:
        with contextlib.suppress(StoreError):  # the other node asks again
            for subscription_id in await self._which_are_wanted(subscriptions):
                async with self.turn(subscription_id):
                    if await self._which_are_wanted([subscription_id]):  # still
                        feed = self._here.pop(subscription_id, None)
                        if feed is not None:
                            await feed.make_way()
                        await self.release(subscription_id)

    async def _which_are_wanted(self, subscriptions: Sequence[int]) -> list[int]:
        rows = await self._store.query(WANTED, subscriptions, self._listener.holder)
        return [row[0] for row in rows]
