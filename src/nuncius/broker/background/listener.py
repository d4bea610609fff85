"""Notifications from and for other nodes.

A node wakes its own waiters by itself. It hears of the work of other nodes, and of messages published by SQL,
through PostgreSQL's NOTIFY; a slow, regular look at everything makes up for missed notifications. NOTIFY
takes a lock that all commits share, so a single node does not send any, and one of several sends the next
only when the last is sent. An onlooker is deaf: it sends notifications, but does not listen to any.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from functools import partial

from nuncius.broker.background.signals import Signals
from nuncius.broker.background.tasks import BackgroundWork
from nuncius.store.connecting import CONNECTION_ERRORS
from nuncius.store.driver import Connection
from nuncius.store.errors import StoreUnavailable
from nuncius.store.queries import procedure, query
from nuncius.store.store import Store

log = logging.getLogger(__name__)

CHANNEL = "nuncius"
LOOK_SECONDS = 2.0
# When the server was away, all nodes reconnect at about the same time. For this long none counts as dead.
GRACE_SECONDS = 3.0

ENTER = query("nodes", "enter")
NEW_HOLDER = query("nodes", "new_holder")
HOLD = query("nodes", "hold")
NOTE_HOLDER = query("nodes", "note_holder")
COUNT = query("nodes", "count")


class Listener:
    def __init__(self, store: Store, signals: Signals, *, deaf: bool = False) -> None:
        self._store = store
        self._deaf = deaf
        self._signals = signals
        self._ears = store.lane("listen")
        self._mouth = store.lane("announce")
        self._connection: Connection | None = None
        self._topics: set[int] = set()
        self._queues: set[int] = set()
        self._announcing = False
        self._background = BackgroundWork()
        self._count_again = asyncio.Event()
        self.nodes = 2 if deaf else 1  # until they are counted
        self.holder = 0
        self._held_on: Connection | None = None  # the connection that has the holder's lock
        self._held_since = 0.0
        self.on_queue: Callable[[int | None], None] = lambda queue_id: None
        self.on_catalogue: Callable[[], None] = lambda: None
        self.on_wanted: Callable[[int | None], None] = lambda subscription_id: None
        self.on_free: Callable[[int], None] = lambda subscription_id: None

    @property
    def may_judge(self) -> bool:
        """Return True if this node has been connected long enough to consider other nodes dead."""
        if self._held_on is None or self._held_on.is_closed():
            return False
        return asyncio.get_running_loop().time() - self._held_since >= GRACE_SECONDS

    async def start(self) -> None:
        if self._deaf:
            self._background.start(self._keep_looking())
            return
        await self._listen()
        self._background.start(self._keep_listening())

    async def close(self) -> None:
        self._background.cancel()
        await self._background.drain()
        await self._ears.close()
        await self._mouth.close()

    def arrived(self, topic_ids: Collection[int]) -> None:
        """Wake readers of topics, here and at other nodes."""
        for topic_id in topic_ids:
            self._signals.raise_for(topic_id)
        if self.nodes > 1:
            self._topics.update(topic_ids)
            self._announce()

    def announce_queue(self, queue_id: int) -> None:
        if self.nodes > 1:
            self._queues.add(queue_id)
            self._announce()

    def _announce(self) -> None:
        if not self._announcing:
            self._announcing = True
            self._background.start(self._send())

    async def _send(self) -> None:
        try:
            while self._topics or self._queues:
                topics, self._topics = self._topics, set()
                queues, self._queues = self._queues, set()
                try:
                    connection = await self._mouth.connection()
                    await connection.fetch(procedure("announce", 2), list(topics), list(queues))
                except StoreUnavailable:
                    pass  # other nodes look by themselves every now and then
                except CONNECTION_ERRORS:
                    self._mouth.discard()
        finally:
            self._announcing = False

    async def _listen(self) -> None:
        connection = await self._ears.connection()
        if connection is not self._connection:
            connection.add_termination_listener(lambda _: self._count_again.set())
            await connection.add_listener(CHANNEL, self._heard)
            await connection.fetch(ENTER)
            self._connection = connection
        if connection is not self._held_on:
            await self._hold(connection)
        self.nodes = await connection.fetchval(COUNT)

    async def _hold(self, connection: Connection) -> None:
        """Take the lock on this node's number. If the server has not noticed yet that the last connection is
        gone, that connection still holds the lock for this node: try again with the next look."""
        while not self.holder:
            number = await connection.fetchval(NEW_HOLDER)
            if await connection.fetchval(HOLD, number):
                self.holder = number
                break
        else:
            if not await connection.fetchval(HOLD, self.holder):
                return
        await connection.execute(NOTE_HOLDER, self.holder)
        self._held_on = connection
        self._held_since = asyncio.get_running_loop().time()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self._tell(self.on_catalogue, self._look)

    async def _keep_listening(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._count_again.wait()
            self._count_again.clear()
            before = self._connection
            try:
                await self._listen()
            except StoreUnavailable:
                continue
            except CONNECTION_ERRORS:
                self._ears.discard()
                continue
            except Exception:
                log.exception("a node could not listen by a fault of ours")
                continue
            if self._connection is not before:  # notifications may have been missed
                self._tell(self.on_catalogue, partial(self.on_wanted, None))
            self._tell(self._look)

    def _tell(self, *news: Callable[[], None]) -> None:
        """Call all listeners. A failure of one does not keep the others from being called."""
        for tell in news:
            try:
                tell()
            except Exception:
                log.exception("news failed by a fault of ours")

    def _look(self) -> None:
        """Wake all waiting readers, so that they look again."""
        self._signals.raise_for_all()
        self.on_queue(None)

    def _heard(self, connection: object, pid: int, channel: str, payload: object) -> None:
        for word in str(payload).split():
            if word == "*":
                self._look()
            elif word == "c":
                self.on_catalogue()
            elif word == "n":
                self._count_again.set()
            elif word[1:].isdecimal() and word[0] == "t":
                self._signals.raise_for(int(word[1:]))
            elif word[1:].isdecimal() and word[0] == "q":
                self.on_queue(int(word[1:]))
            elif word[1:].isdecimal() and word[0] == "w":
                self.on_wanted(int(word[1:]))
            elif word[1:].isdecimal() and word[0] == "f":
                self.on_free(int(word[1:]))
            else:
                log.warning("a notification that is not ours", extra={"payload": str(payload)[:100]})
