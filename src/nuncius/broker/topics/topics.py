"""Topics: publish, read, and administration."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from operator import attrgetter
from typing import Any

import asyncpg

from nuncius.broker import future
from nuncius.broker.background.listener import Listener
from nuncius.broker.background.signals import Signals, news_before
from nuncius.broker.caller import NODE, Caller
from nuncius.broker.delivery.push.send_order import SendOrder
from nuncius.broker.errors import AlreadyExists, InvalidInput, NoSuchTopic
from nuncius.broker.limits import (
    Limits,
    check_bodies,
    check_count,
    check_headers,
    check_int32,
    check_int64,
    check_keys,
    check_name,
)
from nuncius.broker.names import Names
from nuncius.broker.topics.elsewhere import Elsewhere
from nuncius.broker.topics.publish_lines import PublishLines
from nuncius.broker.topics.publishing import Publishing
from nuncius.broker.topics.topic import PartitionInfo, Publisher, Retention, Topic, TopicInfo
from nuncius.store.calls.fetching import ELSEWHERE, GONE, FetchCall, FetchedEntries, fetch
from nuncius.store.calls.publishing import Placed, PublishCall, Shipment
from nuncius.store.driver import Connection
from nuncius.store.errors import CallFailed
from nuncius.store.queries import query
from nuncius.store.store import Store

log = logging.getLogger(__name__)

TOPIC_ID = attrgetter("topic_id")
PER_ENTRY = 200  # bytes of memory an accepted entry costs besides its body

DESCRIBE = query("topics", "describe")


class Topics:
    def __init__(self, store: Store, signals: Signals, listener: Listener, limits: Limits) -> None:
        self._store = store
        self._signals = signals
        self._listener = listener
        self.arrived = listener.arrived
        self._limits = limits
        self._publishing = store.combiner("publish", self._publish_batch, self._place_again, self._pack)
        self._packed: Shipment | None = None
        self.order = SendOrder()
        self._fetching = store.combiner("fetch", fetch)
        # Round robin for entries that may go to any partition. All of a batch go to the same one: a batch for
        # a hundred partitions costs as much as many batches.
        self._turn = 0
        self._turn_of = -1  # the batch that the turn is for
        self.names = Names(self._ensure)
        self._lines = PublishLines(self.names, self._submit)
        self.elsewhere: Elsewhere | None = None
        self.forwards = False
        """True if other nodes store the entries of the common store."""

    def publish_soon(
        self,
        topic: str,
        bodies: Sequence[bytes],
        done: Callable[[Any], None],
        *,
        keys: Sequence[str | None] | None = None,
        headers: Sequence[str | None] | None = None,
        partition: int | None = None,
        publisher: Publisher | None = None,
        count: int = 0,
        caller: Caller = NODE,
    ) -> None:
        """Publish entries of one topic together. `done` gets a Placed or an exception. The topic is created
        if it does not exist. `count` is the publisher's count for the first entry."""
        call = self._call(topic, bodies, done, keys, headers, partition, publisher, count, caller)
        known = self.names.known(topic)
        if known is None or known.stores is not None or self.forwards or self._lines.lines:
            self._lines.enter(call)
        else:
            call.place(known.topic_id, len(known.partition_ids), self._next_turn)
            self._publishing.submit(call)

    def _call(
        self,
        topic: str,
        bodies: Sequence[bytes],
        done: Callable[[Any], None],
        keys: Sequence[str | None] | None,
        headers: Sequence[str | None] | None,
        partition: int | None,
        publisher: Publisher | None,
        count: int,
        caller: Caller,
    ) -> PublishCall:
        size = check_bodies(self._limits, bodies) + PER_ENTRY * len(bodies)
        if keys is not None:
            check_keys(self._limits, keys, len(bodies))
        if headers is not None:
            check_headers(self._limits, headers, len(bodies))
        if partition is not None:
            check_int32("a partition", partition)
        publisher_id = sticky = None
        if publisher is not None:
            check_count(count)
            publisher_id, sticky = publisher.publisher_id, publisher.name
        return PublishCall(
            done, caller, topic, bodies, keys, headers, partition, sticky, publisher_id, count, size
        )

    async def prepare(
        self,
        publishes: Sequence[tuple[str, bytes, str | None, str | None, Publisher | None, int]],
        caller: Caller,
    ) -> Publishing:
        """Check the entries of a transaction and choose their partitions."""
        calls = []
        for topic, body, headers, key, publisher, count in publishes:
            known = await self.names.find(topic)
            keys = None if key is None else [key]
            call = self._call(
                topic, [body], lambda _: None, keys, headers and [headers], None, publisher, count, caller
            )
            self.place(call, known)
            self._keep_here(call, known)
            calls.append(call)
        return Publishing(calls, partial(self._place_again, calls), self.order, self.arrived)

    def _submit(self, call: PublishCall, topic: Topic | Exception) -> None:
        """Submit a call whose topic was looked up, or may be in another store."""
        if isinstance(topic, Exception):
            call.done(topic)
            return
        self.place(call, topic)
        if self.elsewhere is not None and self.elsewhere.publish(call, topic):
            self._turn_of = -1  # not in our batch
            return
        try:
            self._keep_here(call, topic)
        except CallFailed as error:
            call.done(error)
        else:
            self.store_here(call)

    def store_here(self, call: PublishCall) -> None:
        """Submit a placed call to this store."""
        self._publishing.submit(call)

    async def _publish_batch(
        self, connection: Connection, calls: Sequence[PublishCall], wait: bool
    ) -> list[Any]:
        packed, self._packed = self._packed, None
        topic_ids = set(map(TOPIC_ID, calls))
        self.order.begin(topic_ids)
        try:
            if packed is None or packed.calls is not calls:
                packed = Shipment(calls)
            results = await packed.send(connection, wait)
            self.order.note(calls, results)
        finally:
            self.order.end(topic_ids)
        self.arrived(topic_ids)
        return results

    def _pack(self, calls: Sequence[PublishCall]) -> None:
        """Pack a batch before it is sent. If calls leave the batch meanwhile, it is packed again."""
        self._packed = Shipment(calls)

    def place(self, call: PublishCall, topic: Topic) -> None:
        call.place(topic.topic_id, len(topic.partition_ids), self._next_turn)

    def _keep_here(self, call: PublishCall, topic: Topic) -> None:
        """Move entries to partitions of this store. Refuse those with a key or a partition elsewhere."""
        if topic.stores is None:
            return
        chosen = {call.partitions} if type(call.partitions) is int else set(call.partitions)  # type: ignore[arg-type]
        if all(topic.stores[partition - 1] == 1 for partition in chosen if partition <= len(topic.stores)):
            return
        here = [partition for partition, store in enumerate(topic.stores, 1) if store == 1]
        if call.chosen is not None or call.keys is not None or not here:
            raise CallFailed(f"topic {topic.name!r} is, as a whole or in part, in the store of a broker")
        call.partitions = here[call.default_partition(len(here), self._next_turn) - 1]

    def _next_turn(self) -> int:
        """Return the turn for entries that may go to any partition: one for all of a batch."""
        if self._turn_of != self._publishing.batches:
            self._turn_of = self._publishing.batches
            self._turn += 1
        return self._turn

    async def _place_again(self, calls: Sequence[PublishCall]) -> None:
        """Choose partitions again for calls that were placed by an outdated layout."""
        for name in {call.topic_name for call in calls}:
            topic = await self._ensure(name)
            self.names.learn(name, topic)
            for call in calls:
                if call.topic_name == name:
                    self.place(call, topic)
                    self._keep_here(call, topic)

    async def publish(self, topic: str, bodies: Sequence[bytes], **options: Any) -> Placed:
        placed, done = future.new()
        self.publish_soon(topic, bodies, done, **options)
        return await placed  # type: ignore[no-any-return]

    async def fetch(
        self,
        topic: Topic,
        partition: int,
        position: int,
        limit: int,
        *,
        wait: float = 0,
        caller: Caller = NODE,
        gate: AbstractAsyncContextManager[None] | None = None,
    ) -> FetchedEntries | None:
        """Return entries from a position on, or None if none come within the wait. Each look goes through
        the gate, if there is one."""
        partition_id = topic.partition_id(partition)
        check_int64("a position", position)
        deadline = asyncio.get_running_loop().time() + wait
        with self._signals.watching(topic.topic_id) as news:
            while True:
                news.clear()
                async with gate or nullcontext():
                    entries = await self.fetch_now(partition_id, position, limit, caller)
                if entries == GONE:
                    self.names.forget(topic.name)
                    raise NoSuchTopic(f"topic {topic.name!r} was deleted")
                if entries is not None or not await news_before(deadline, news):
                    return entries  # type: ignore[return-value]

    def fetch_now(
        self, partition_id: int, position: int, limit: int, caller: Caller
    ) -> asyncio.Future[FetchedEntries | int | None]:
        fetched, done = future.new()
        limit = min(limit, self._limits.max_batch)
        call = FetchCall(done, caller, partition_id, position, limit)
        if self.elsewhere is None or not self.elsewhere.fetch(call):
            call.done = partial(self._fetched, call, done)
            self._fetching.submit(call)
        return fetched

    def _fetched(self, call: FetchCall, done: Callable[[Any], None], result: Any) -> None:
        call.done = done  # break the reference cycle, which would keep the fetched entries in memory for long
        if result != ELSEWHERE:
            done(result)
        elif self.elsewhere is None:
            done(None)
        else:
            self.elsewhere.find(call)

    async def create(self, name: str, partitions: int = 1, *, caller: Caller = NODE) -> None:
        check_name("topic", name)
        if not 1 <= partitions <= self._limits.max_partitions:
            raise InvalidInput(f"a topic has 1 to {self._limits.max_partitions} partitions")
        try:
            await self._store.call_once("create_topic", name, partitions)
        except asyncpg.UniqueViolationError:
            raise AlreadyExists(f"there is a topic {name!r} already") from None
        caller.log(log, "topic created", topic=name, partitions=partitions)

    async def grow(self, name: str, partitions: int, *, caller: Caller = NODE) -> None:
        """Add partitions until the topic has so many. A topic that has more stays as it is."""
        if not 1 <= partitions <= self._limits.max_partitions:
            raise InvalidInput(f"a topic has 1 to {self._limits.max_partitions} partitions")
        rows = await self._store.call("grow_topic", name, partitions)
        if not rows[0][0]:
            raise NoSuchTopic(f"there is no topic {name!r}")
        self.names.forget(name)
        caller.log(log, "topic grown", topic=name, partitions=partitions)

    async def delete(self, name: str, *, caller: Caller = NODE) -> None:
        rows = await self._store.call_once("delete_topic", name)
        self.names.forget(name)
        if not rows[0][0]:
            raise NoSuchTopic(f"there is no topic {name!r}")
        self._signals.raise_for_all()
        caller.log(log, "topic deleted", topic=name)

    async def purge(self, name: str, *, caller: Caller = NODE) -> int:
        """Make all entries of a topic unreadable. Return how many those were."""
        purged: int | None = (await self._store.call_once("purge_topic", name))[0][0]
        if purged is None:
            raise NoSuchTopic(f"there is no topic {name!r}")
        self._listener.on_catalogue()  # at once: readers of this node must not see purged entries
        caller.log(log, "topic purged", topic=name, messages=purged)
        return purged

    async def set_retention(self, name: str, retention: Retention, *, caller: Caller = NODE) -> None:
        try:
            rows = await self._store.call(
                "set_retention", name, retention.mode, retention.seconds, retention.bytes
            )
        except asyncpg.CheckViolationError:
            raise InvalidInput(
                "retention is 'forever', 'subscribers', 'time' with seconds or 'size' with bytes"
            ) from None
        if not rows[0][0]:
            raise NoSuchTopic(f"there is no topic {name!r}")
        caller.log(log, "retention set", topic=name, mode=retention.mode)

    async def find(self, names: Sequence[str] | None = None) -> list[TopicInfo]:
        """Return the topics of those names, or all."""
        rows = await self._store.query(DESCRIBE, names)
        return [
            TopicInfo(
                row["topic_name"],
                Retention(row["retention"], row["retention_seconds"], row["retention_bytes"]),
                row["created_at"],
                tuple(PartitionInfo(n, first, end) for n, (first, end) in enumerate(row["ends"], 1)),
                row["readers"],
            )
            for row in rows
        ]

    async def existing(self, name: str) -> Topic:
        """Return the topic of that name. Unlike publishing, do not create it."""
        rows = await self._store.call("find_topics", [name])
        if not rows:
            raise NoSuchTopic(f"there is no topic {name!r}")
        stores = tuple(rows[0]["store_ids"])
        return Topic(
            rows[0]["topic_id"],
            name,
            tuple(rows[0]["partition_ids"]),
            None if all(store == 1 for store in stores) else stores,
        )

    async def _ensure(self, name: str) -> Topic:
        check_name("topic", name)
        await self._store.call("ensure_topic", name)
        return await self.existing(name)
