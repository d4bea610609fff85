"""Connections to brokers, and the choice of one: the broker of a partition, or another if that is lost."""

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg

from nuncius.broker.errors import OutcomeUnknown, StoreError, StoreUnavailable
from nuncius.cluster.link.codec import Send
from nuncius.cluster.link.link import Forward, Link
from nuncius.cluster.members import ClusterMember

NO_BROKER = "no broker answers; nothing was stored"
LOST_BROKER = "the broker was lost, and no other answers; the entries may be stored"
PATIENCE = 3.0  # seconds that a call waits for a broker when there is none
SEEK_SECONDS = 0.1
HANG_SECONDS = 10.0
SILENT_SECONDS = 2.0  # for a broker that other nodes do not hear either


@dataclass(slots=True)
class Followed:
    """The broker that a stream's entries are in flight to. Until all are answered, later entries go to the
    same broker, even if the partition has another one by now: two brokers would not keep the order. A stream
    is what a publisher sends or, without one, what a connection sends to a partition."""

    link: Link | None = None
    under_way: int = 0


class Forwarding:
    def __init__(self) -> None:
        self.links: dict[int, Link] = {}  # by broker id
        self.members: dict[int, ClusterMember] = {}
        self._brokers_of_stores: dict[int, int] = {}
        self._links_made = itertools.count(1)
        self._name = secrets.token_hex(6)
        self.flushes = 0
        """The number of frames sent so far, on all connections."""
        self._following: dict[Hashable, Followed] = {}  # by stream
        self.waiting: list[Forward] = []  # for a broker, in order
        self._seeking: asyncio.Task[None] | None = None
        self._curious: list[Callable[[], None]] = []
        self._looking: asyncio.Task[None] | None = None
        self.look: Callable[[], Awaitable[None]]
        """Calls `learn` with the current members."""

    def learn(self, members: Iterable[ClusterMember]) -> None:
        """Update members and connections. Called once a second."""
        self.members = {m.broker_id: m for m in members if m.broker_id is not None}
        self._brokers_of_stores = {m.store_id: n for n, m in self.members.items() if m.store_id != 1}
        for number, link in list(self.links.items()):
            member = self.members.get(number)
            if member is None or (member.host, member.link_port) != (link.host, link.port):
                del self.links[number]
                link.leave()
            elif member.is_alive or not link.is_down:
                link.probe(HANG_SECONDS if member.is_alive else SILENT_SECONDS)

    def _flushed(self) -> None:
        self.flushes += 1

    def close(self) -> None:
        for task in (self._seeking, self._looking):
            if task is not None:
                task.cancel()
        for link in self.links.values():
            link.leave()

    # Usable brokers

    def of_store(self, store: int) -> Link | None:
        """Return the connection to the broker whose own store this is."""
        return self._link(self._brokers_of_stores.get(store))

    def may_be_given_more(self, store: int) -> bool:
        """Return True if new entries may go to the broker whose own store this is."""
        broker = self._brokers_of_stores.get(store)
        return broker is not None and not self.members[broker].removed and self._link(broker) is not None

    @property
    def lost(self) -> list[int]:
        """Brokers that did not answer when they were last tried."""
        return [broker for broker, link in self.links.items() if link.is_down]

    @property
    def has_any(self) -> bool:
        return self._any_link() is not None

    def _link(self, broker: int | None) -> Link | None:
        """Return the connection to a broker, or None if it cannot be used."""
        if broker is None:
            return None
        link = self.links.get(broker)
        if link is None:
            member = self.members.get(broker)
            if member is None or not member.is_alive or member.link_port is None:
                return None
            name = f"{self._name}-{next(self._links_made)}"
            link = self.links[broker] = Link(member.host, member.link_port, name, self._flushed)
        return None if link.is_down else link

    def _any_link(self) -> Link | None:
        for broker, member in self.members.items():
            if member.may_be_given_more:
                link = self._link(broker)
                if link is not None:
                    return link
        return None

    # Entries of the common store

    def send_to_common(
        self, send: Send, broker: int | None, done: Callable[[Any], None], caller: Hashable
    ) -> None:
        stream: Hashable = send.publisher_id or None
        if stream is None and caller is not None:
            stream = (caller, send.topic_id, send.partition)
        if stream is not None:
            self._following.setdefault(stream, Followed()).under_way += 1
            done = partial(self._unfollow, stream, done)
        forward = Forward(send, done, self._dispatch, stream)
        if self.waiting:
            self._wait(forward)  # keep the order: no call overtakes a waiting one
        else:
            self._dispatch(forward, broker)

    def _dispatch(self, forward: Forward, broker: int | None = None) -> None:
        """Send to the broker that has the partition, or else to any: all of them serve the common store."""
        followed = None if forward.stream is None else self._following[forward.stream]
        if followed is not None and followed.link is not None and not followed.link.is_down:
            link: Link | None = followed.link
        else:
            link = self._link(broker) or self._any_link()
            if followed is not None:
                followed.link = link
        if link is None:
            self._wait(forward)
        else:
            link.forward(forward)

    def _unfollow(self, stream: Hashable, done: Callable[[Any], None], result: Any) -> None:
        followed = self._following[stream]
        followed.under_way -= 1
        if not followed.under_way:
            del self._following[stream]
        done(result)

    # While no broker answers

    @property
    def is_looking(self) -> bool:
        return self._looking is not None and not self._looking.done()

    def when_looked(self, then: Callable[[], None]) -> None:
        """Call `then` after the members were read again: a broker may have started a moment ago."""
        self._curious.append(then)
        if not self.is_looking:
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        while self._curious:
            curious, self._curious = self._curious, []
            with contextlib.suppress(StoreError, asyncpg.PostgresError):
                await self.look()
            for link in list(self.links.values()):
                await link.probed()
            for then in curious:
                then()

    def _wait(self, forward: Forward) -> None:
        loop = asyncio.get_running_loop()
        forward.deadline = forward.deadline or loop.time() + PATIENCE
        self.waiting.append(forward)
        if self._seeking is None or self._seeking.done():
            self._seeking = loop.create_task(self._seek())

    async def _seek(self) -> None:
        """Repeat waiting calls until a broker is found: one may have started a moment ago."""
        while self.waiting:
            with contextlib.suppress(StoreError, asyncpg.PostgresError):
                await self.look()
            waiting, self.waiting = self.waiting, []
            for forward in waiting:
                if self._any_link() is not None:
                    self._dispatch(forward)
                elif forward.deadline > asyncio.get_running_loop().time():
                    self.waiting.append(forward)
                elif forward.was_sent:
                    forward.done(OutcomeUnknown(LOST_BROKER))
                else:
                    forward.done(StoreUnavailable(NO_BROKER))
            if self.waiting:
                await asyncio.sleep(SEEK_SECONDS)
