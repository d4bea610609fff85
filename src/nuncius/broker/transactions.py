"""Transactions: what a client sends and acknowledges, all together or not at all."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from nuncius.broker.errors import InvalidInput
from nuncius.broker.feeds import Feed, Feeds
from nuncius.broker.outstanding import Given, Place
from nuncius.broker.queues import Queues
from nuncius.broker.topics import Publisher, Topics
from nuncius.store.acknowledging import Acknowledgement
from nuncius.store.driver import Connection
from nuncius.store.putting import Letter
from nuncius.store.store import Store

MAX_STEPS = 100_000


class Transaction:
    """Collects steps; nothing happens before `commit_soon`, and dropping it is all an abort takes."""

    def __init__(self, transactions: "Transactions") -> None:
        self._transactions = transactions
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
        self.publishes.append((topic, body, headers, key, publisher, count))
        self._check()

    def put(
        self, queue_id: int, letter: Letter, *, publisher: Publisher | None = None, count: int = 0
    ) -> None:
        self.puts.append((queue_id, letter, publisher, count))
        self._check()

    def settle(self, lease_ids: Sequence[int]) -> None:
        self.settled += lease_ids
        self._check()

    def release(self, lease_ids: Sequence[int], reason: str) -> None:
        self.released += [(each, reason) for each in lease_ids]
        self._check()

    def ack(self, feed: Feed, partition: int, offset: int, *, cumulative: bool) -> None:
        self.said.append((feed, partition, offset, cumulative, None))
        self._check()

    def nack(self, feed: Feed, partition: int, offset: int, *, cumulative: bool, reason: str) -> None:
        self.said.append((feed, partition, offset, cumulative, reason))
        self._check()

    def commit_soon(self, done: Callable[[Any], None]) -> None:
        """Everything happens, or nothing does; `done` gets None or an exception."""
        self._transactions.start(self._commit(done))

    def _check(self) -> None:
        steps = len(self.publishes) + len(self.puts) + len(self.said) + len(self.settled) + len(self.released)
        if steps > MAX_STEPS:
            raise InvalidInput(f"a transaction has at most {MAX_STEPS} steps")

    async def _commit(self, done: Callable[[Any], None]) -> None:
        try:
            await self._transactions.carry_out(self)
        except Exception as error:
            done(error)
        else:
            done(None)


class Transactions:
    def __init__(self, store: Store, topics: Topics, queues: Queues, feeds: Feeds) -> None:
        self._store = store
        self._topics = topics
        self._queues = queues
        self._feeds = feeds
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def carry_out(self, transaction: Transaction) -> None:
        acknowledged = _Acknowledged(transaction.said)
        try:
            publishing = await self._topics.prepare(transaction.publishes)
            putting = self._queues.prepare(transaction.puts)

            async def work(connection: Connection) -> Any:
                async with connection.transaction():
                    # Locks are taken in the same order by everybody: topics, then queues, then leases.
                    await publishing.carry_out(connection)
                    await putting.carry_out(connection)
                    returned = await self._queues.leases.carry_out(
                        connection, transaction.settled, transaction.released
                    )
                    attempts = await self._feeds.acknowledge_in(connection, acknowledged.said)
                return returned, attempts

            returned, attempts = await self._store.run(work, repeatable=False)
        except BaseException:
            acknowledged.restore()
            raise
        acknowledged.failed(attempts)
        publishing.announce()
        putting.announce()
        self._queues.leases.came_back(returned)


class _Acknowledged:
    """What a transaction says to feeds. They are told at once, and asked to forget it if it fails."""

    def __init__(self, said: list[tuple[Feed, int, int, bool, str | None]]) -> None:
        self._taken: list[tuple[Feed, dict[Place, Given]]] = []
        self.said: list[tuple[Feed, Acknowledgement]] = []
        try:
            for feed, partition, offset, cumulative, reason in said:
                taken, words = feed.acknowledge(partition, offset, cumulative=cumulative, reason=reason)
                self._taken.append((feed, taken))
                self.said.append((feed, words))
        except InvalidInput:
            self.restore()
            raise

    def restore(self) -> None:
        for feed, taken in self._taken:
            feed.restore(taken)

    def failed(self, attempts: list[list[int]]) -> None:
        for (feed, taken), (_, words), counts in zip(self._taken, self.said, attempts, strict=True):
            if words.failed:
                feed.failed(taken, counts)
