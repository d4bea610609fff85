"""A broker's own store: entries of its partitions, under the numbers of the common catalogue.

The catalogue itself, subscriptions and positions stay in the common store. This store copies from there,
every few seconds, what it needs: its partitions, their retention, and what subscribers still hold. In return
it reports the ends of its partitions, for lag and retention.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import asyncpg

from nuncius.broker import Broker
from nuncius.broker.caller import Caller
from nuncius.broker.model import Publisher
from nuncius.broker.names import Names
from nuncius.broker.topics.publishers import Publishers
from nuncius.cluster.link.codec import Moved, Send
from nuncius.cluster.scattering import call_of
from nuncius.store.calls.fetching import GONE, FetchCall, fetch
from nuncius.store.calls.publishing import PublishCall, publish
from nuncius.store.combiner.combiner import Detour
from nuncius.store.driver import Connection
from nuncius.store.errors import StoreError
from nuncius.store.queries import query
from nuncius.store.store import Store

log = logging.getLogger(__name__)

LOCK_SECONDS = 10.0  # a killed broker's connections may take a moment to end
TELL_SECONDS = 1.0
COPY_SECONDS = 5.0
TIDY_SECONDS = 60.0
PER_ENTRY = 200  # bytes of memory an accepted entry costs besides its body

OWN = query("cluster", "own_store")
CLUSTER = query("cluster", "identity")
BELONGS_TO = query("cluster", "belongs_to")
JOIN = query("cluster", "join")


class StoreInUse(StoreError):
    """Another broker uses this store."""


class OtherCluster(StoreError):
    """The store belongs to another cluster."""


class OwnStore:
    store_id: int

    def __init__(self, dsn: str, broker: Broker) -> None:
        self._broker = broker
        self._common = broker.store
        self._store = Store(dsn, patience=self._common.patience, silence=self._common.silence)
        self._common.take_along(self._store)
        self.holding = self._store.lane("own store")
        self._publishers: Names[Publisher] = Names(partial(Publishers(self._store).find, lasting=False))
        self._partition_ids: set[int] = set()
        self._here: set[tuple[int, Any]] = set()  # topic id and partition
        self._told: dict[int, tuple[int, int]] = {}
        self._news = False
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Lock the store for this broker, and learn its number in the cluster."""
        await self._store.open()
        self._publishing = self._store.combiner("publish", self._publish_batch, self._copy_for)
        self._fetching = self._store.combiner("fetch", self._fetch_batch)
        try:
            await self._take()
            await self._store.connect_lanes()
            await self._introduce()
            await self.copy()
            await self.tell()
        except BaseException:
            await self._let_go()
            raise
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._repeat(seconds, work))
            for seconds, work in (
                (TELL_SECONDS, self._tell_news),
                (COPY_SECONDS, self.look_after),
                (TIDY_SECONDS, self._tidy),
            )
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._store.drain()
        with contextlib.suppress(StoreError, asyncpg.PostgresError):
            await self.tell()
        await self._let_go()

    async def _let_go(self) -> None:
        await self.holding.close()
        await self._store.close()

    async def _take(self) -> None:
        connection = await self.holding.connection()
        deadline = asyncio.get_running_loop().time() + LOCK_SECONDS
        while not await connection.fetchval(OWN):
            if asyncio.get_running_loop().time() > deadline:
                raise StoreInUse("another broker runs on this store: give each broker its own")
            await asyncio.sleep(0.1)

    async def _introduce(self) -> None:
        cluster = (await self._common.query(CLUSTER))[0][0]
        rows = await self._store.query(BELONGS_TO)
        if rows and rows[0][0] != cluster:
            raise OtherCluster("this store belongs to a broker of another cluster: give it one of its own")
        known = rows[0][1] if rows else 0
        found = await self._common.call("enter_store", known, self._store.dsn)
        self.store_id = found[0][0]
        if self.store_id != known:
            await self._store.query(JOIN, cluster, self.store_id)

    # Entries

    def publish(self, send: Send, done: Callable[[Any], None], caller: Caller) -> None:
        """Store entries of one partition. `done` receives a Placed or an exception."""
        if send.publisher:
            self._publishers.when_known(send.publisher, partial(self._submit, send, done, caller))
        else:
            self._submit(send, done, caller, None)

    def _submit(
        self,
        send: Send,
        done: Callable[[Any], None],
        caller: Caller,
        publisher: Publisher | Exception | None,
    ) -> None:
        if isinstance(publisher, Exception):
            done(publisher)
            return
        size = sum(map(len, send.bodies)) + PER_ENTRY * len(send.bodies)
        publisher_id = None if publisher is None else publisher.publisher_id
        self._publishing.submit(call_of(send, done, caller, publisher_id, size))

    def fetch(self, call: FetchCall) -> None:
        self._fetching.submit(call)

    async def _publish_batch(
        self, connection: Connection, calls: Sequence[PublishCall], wait: bool
    ) -> list[Any]:
        known = [call for call in calls if (call.topic_id, call.partitions) in self._here]
        results = dict(zip(known, await publish(connection, known, wait) if known else (), strict=True))
        self._news = True
        self._broker.topics.arrived({call.topic_id for call in known})
        return [results.get(call, Detour.STALE) for call in calls]

    async def _fetch_batch(self, connection: Connection, calls: Sequence[FetchCall], wait: bool) -> list[Any]:
        results = await fetch(connection, calls, wait)
        gone = {call.partition_id for call, result in zip(calls, results, strict=True) if result == GONE}
        if not gone <= self._partition_ids:
            await self.copy()
        # A partition that was assigned here a moment ago is not gone but empty.
        new = gone & self._partition_ids
        return [
            None if call.partition_id in new else result for call, result in zip(calls, results, strict=True)
        ]

    # The catalogue

    async def _copy_for(self, calls: Sequence[PublishCall]) -> None:
        """Copy the catalogue for calls with unknown partitions: they may be new."""
        await self.copy()
        if not all((call.topic_id, call.partitions) in self._here for call in calls):
            raise Moved("the partition is not here")

    async def copy(self) -> None:
        """Copy from the common catalogue the partitions that are in this store."""
        rows = await self._common.call("partitions_of_store", self.store_id)
        columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(10)]
        await self._store.call("mirror_partitions", *columns)
        self._partition_ids = set(columns[6])
        self._here = set(zip(columns[0], columns[7], strict=True))

    async def tell(self) -> None:
        """Report to the common store the first and next offsets of partitions that have changed."""
        rows = await self._store.call("ends_of_all")
        news = {row[0]: (row[1], row[2]) for row in rows if self._told.get(row[0]) != (row[1], row[2])}
        if news:
            firsts, nexts = zip(*news.values(), strict=True)
            await self._common.call("note_ends", list(news), list(firsts), list(nexts))
            self._told.update(news)

    async def _tell_news(self) -> None:
        if self._news:
            self._news = False
            await self.tell()

    async def look_after(self) -> None:
        """Apply retention, as the common store defines it."""
        await self.copy()
        while (await self._store.call("collect"))[0][0]:
            pass
        await self.tell()

    async def _tidy(self) -> None:
        await self._store.call("tidy")

    async def _repeat(self, seconds: float, work: Callable[[], Any]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except (StoreError, asyncpg.PostgresError) as error:
                log.warning("looking after the broker's own store failed", extra={"error": str(error)})
            except Exception:
                log.exception("looking after the broker's own store failed by a fault of ours")
