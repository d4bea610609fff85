"""Transactions: sends and acknowledgements of a client that take effect together or not at all."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import asyncpg

from nuncius.broker.background.tasks import BackgroundWork
from nuncius.broker.caller import Caller
from nuncius.broker.delivery.push.feed import Feed
from nuncius.broker.delivery.push.feeds import Feeds
from nuncius.broker.delivery.push.outstanding import Given, Place
from nuncius.broker.errors import CallFailed, InvalidInput
from nuncius.broker.queues.queues import Queues
from nuncius.broker.topics.publishing import Publishing, Stale
from nuncius.broker.topics.topic import Publisher
from nuncius.broker.topics.topics import Topics
from nuncius.store.calls.acknowledging import Acknowledgement, Noted
from nuncius.store.calls.putting import Letter
from nuncius.store.driver import Connection
from nuncius.store.store import POOL_SIZE, Store

log = logging.getLogger(__name__)

MAX_STEPS = 100_000
MAX_BYTES = 64 << 20
AT_A_TIME = POOL_SIZE // 2  # a transaction may wait for a lock, and other work needs the pool, too


class Transaction:
    """Steps collected for one commit. Nothing happens before `commit_soon`; to abort, drop the object."""

    def __init__(self, transactions: "TransactionRunner", caller: Caller) -> None:
        self._transactions = transactions
        self.caller = caller
        self._steps = 0
        self._bytes = 0
        self.publishes: list[tuple[str, bytes, str | None, str | None, Publisher | None, int]] = []
        self.puts: list[tuple[int, Letter, Publisher | None, int]] = []
        self.settled: list[int] = []
        self.released: list[tuple[int, str]] = []
        self.said: list[tuple[Feed, int, int, bool, str | None]] = []

    def publish(
        self,
        topic: str,
        body: bytes,
        *,
        headers: str | None = None,
        key: str | None = None,
        publisher: Publisher | None = None,
        count: int = 0,
    ) -> None:
        self._add(1, len(body) + len(headers or ""))
        self.publishes.append((topic, body, headers, key, publisher, count))

    def put(
        self, queue_id: int, letter: Letter, *, publisher: Publisher | None = None, count: int = 0
    ) -> None:
        self._add(1, len(letter.body) + len(letter.headers or ""))
        self.puts.append((queue_id, letter, publisher, count))

    def settle(self, lease_ids: Sequence[int]) -> None:
        self._add(len(lease_ids))
        self.settled += lease_ids

    def release(self, lease_ids: Sequence[int], reason: str) -> None:
        self._add(len(lease_ids))
        self.released += [(each, reason) for each in lease_ids]

    def ack(self, feed: Feed, partition: int, offset: int, *, cumulative: bool) -> None:
        self._add(1)
        self.said.append((feed, partition, offset, cumulative, None))

    def nack(self, feed: Feed, partition: int, offset: int, *, cumulative: bool, reason: str) -> None:
        self._add(1)
        self.said.append((feed, partition, offset, cumulative, reason))

    def commit_soon(self, done: Callable[[Any], None]) -> None:
        """Carry out all steps or none. `done` gets None or an exception."""
        self._transactions.start(self._commit(done))

    def _add(self, steps: int, size: int = 0) -> None:
        self._steps += steps
        self._bytes += size
        if self._steps > MAX_STEPS or self._bytes > MAX_BYTES:
            raise InvalidInput(f"a transaction has at most {MAX_STEPS} steps and {MAX_BYTES} bytes")

    async def _commit(self, done: Callable[[Any], None]) -> None:
        result = None
        try:
            await self._transactions.carry_out(self)
        except Exception as error:
            result = error
        try:
            done(result)
        except Exception:
            log.exception("a caller failed on its answer")


class TransactionRunner:
    def __init__(self, store: Store, topics: Topics, queues: Queues, feeds: Feeds) -> None:
        self._store = store
        self._topics = topics
        self._queues = queues
        self._feeds = feeds
        self._slots = asyncio.Semaphore(AT_A_TIME)
        background = BackgroundWork()
        self.start = background.start
        self.drain = background.drain

    async def carry_out(self, transaction: Transaction) -> None:
        acknowledged = _Acknowledged(transaction.said)
        try:
            publishing = await self._topics.prepare(transaction.publishes, transaction.caller)
            putting = self._queues.prepare(transaction.puts, transaction.caller)

            async def work(connection: Connection) -> tuple[Sequence[Any], Sequence[int], Noted]:
                async with connection.transaction():
                    # Locks are always taken in the same order: topics, then queues, then leases.
                    placed = await publishing.carry_out(connection)
                    await putting.carry_out(connection)
                    returned = await self._queues.leases.carry_out(
                        connection, transaction.settled, transaction.released
                    )
                    return placed, returned, await self._feeds.note_in(connection, acknowledged.words)

            async with self._slots:
                with publishing.under_way():
                    placed, returned, noted = await self._run(work, publishing)
                    publishing.announce(placed)
        except BaseException as error:
            acknowledged.restore()
            if isinstance(error, asyncpg.PostgresError):
                raise CallFailed(str(error)) from error
            raise
        acknowledged.stored(noted)
        putting.announce()
        self._queues.leases.came_back(returned)
        if transaction.released:
            self._queues.leases.expect_retry()

    async def _run(self, work: Callable[[Connection], Awaitable[Any]], publishing: Publishing) -> Any:
        while True:
            try:
                return await self._store.run(work, repeatable=False)
            except Stale:  # nothing of it is stored
                await publishing.place_again()


class _Acknowledged:
    """Acknowledgements of a transaction. Feeds note them at once, and undo them if the transaction fails."""

    def __init__(self, said: list[tuple[Feed, int, int, bool, str | None]]) -> None:
        self._taken: list[tuple[Feed, Mapping[Place, Given]]] = []
        self.words: list[Acknowledgement] = []
        try:
            for feed, partition, offset, cumulative, reason in said:
                taken, words = feed.acknowledge(partition, offset, cumulative=cumulative, reason=reason)
                self._taken.append((feed, taken))
                self.words.append(words)
        except InvalidInput:
            self.restore()
            raise

    def restore(self) -> None:
        for feed, taken in self._taken:
            feed.restore(taken)

    def stored(self, noted: Noted) -> None:
        noted.settle()
        for (feed, taken), words, attempts in zip(self._taken, self.words, noted.attempts, strict=True):
            if words.failed:
                feed.failed(taken, attempts)
