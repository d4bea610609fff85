"""Telesto clients on two nodes, one of which is killed again and again."""

import asyncio
import contextlib
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field

from nuncius import testing
from nuncius.doors.telesto import table
from nuncius.doors.telesto.table import Dialect, ErrorType, ReadMode
from telesto_peer import Peer, message

CLIENTS = 24
KILLS = 12
SECONDS_OF_LOAD = 60
PAUSE = 0.02  # a client thinks between requests: the nodes shall be busy, not this machine


@dataclass
class Account:
    """What the clients know for certain, and what they cannot know."""

    put: set[str] = field(default_factory=set)
    unsure_puts: set[str] = field(default_factory=set)
    read: Counter[str] = field(default_factory=Counter)
    unsure_reads: int = 0
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False

    @property
    def outstanding(self) -> set[str]:
        return self.put - set(self.read)


class Worker:
    """A client that puts, reads, and connects to the other node when its own is gone."""

    def __init__(self, number: int, ports: list[int], queue: int, account: Account) -> None:
        self._name = f"worker-{number}"
        self._ports = itertools.cycle(ports[number % 2 :] + ports[: number % 2])
        self._queue = queue
        self._account = account
        self._texts = (f"{number}-{n}" for n in itertools.count())
        self._client_id = 0
        self._dice = random.Random(number)

    async def run(self) -> None:
        while not self._account.over:
            with contextlib.suppress(OSError, EOFError):
                reader, writer = await asyncio.open_connection("127.0.0.1", next(self._ports))
                try:
                    await self._work(await self._introduce(Peer(reader, writer, Dialect.DEPLOYED)))
                finally:
                    writer.close()
                    with contextlib.suppress(OSError):
                        await writer.wait_closed()

    async def _introduce(self, peer: Peer) -> Peer:
        if self._client_id:
            await peer.ask(table.IdentifyClient(peer.id, self._client_id))
        else:
            self._client_id = await peer.register(self._name)
        return peer

    async def _work(self, peer: Peer) -> None:
        while not self._account.over:
            if self._dice.random() < 0.5:
                await self._put(peer)
            else:
                await self._read(peer)
            await asyncio.sleep(PAUSE)

    async def _put(self, peer: Peer) -> None:
        text = next(self._texts)
        self._account.unsure_puts.add(text)
        priority = self._dice.randint(1, 10)
        answer = await peer.ask(table.PutMessage(peer.id, message(self._queue, text, priority=priority), []))
        if isinstance(answer, table.Success):
            self._account.put.add(text)
        self._account.unsure_puts.discard(text)

    async def _read(self, peer: Peer) -> None:
        self._account.unsure_reads += 1
        answer = await peer.ask(table.ReadMessage(peer.id, self._queue, 0, ReadMode.PRIORITY))
        self._account.unsure_reads -= 1
        if isinstance(answer, table.ReadMessageResponse):
            self._account.read[answer.messages[0].text] += 1
            self._account.moved.set()


async def drain(port: int, queue: int, account: Account) -> None:
    """Reads what is left."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    peer = Peer(reader, writer, Dialect.DEPLOYED)
    await peer.register("drain")
    while True:
        answer = await peer.ask(table.ReadMessage(peer.id, queue, 0, ReadMode.TIME))
        if isinstance(answer, table.Error):
            assert answer.error_type == ErrorType.NO_MESSAGES_RETRIEVED
            break
        assert isinstance(answer, table.ReadMessageResponse)
        account.read[answer.messages[0].text] += 1
    await peer.close()


async def test_killing_one_of_two_nodes() -> None:
    """Whatever node is killed, no message is read twice, every message that was put is read once, and what a
    dying connection left uncertain is at most the one request that was under way on it."""
    dice = random.Random(7)
    account = Account()
    with testing.broker() as first, testing.broker(store=first.dsn) as second:
        async with first.async_client() as client:
            queue = await client.create_queue("work")
        ports = [first.port, second.port]
        workers = [Worker(n, ports, queue, account) for n in range(CLIENTS)]
        tasks = [asyncio.ensure_future(worker.run()) for worker in workers]
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for kill in range(KILLS):
            # The moment is a number of messages later, so it falls into the middle of everything.
            target = account.read.total() + dice.randint(20, 400)
            while account.read.total() < target or loop.time() < begin + kill * SECONDS_OF_LOAD / KILLS:
                account.moved.clear()
                async with asyncio.timeout(60):
                    await account.moved.wait()
            victim = dice.choice([first, second])
            await asyncio.to_thread(victim.kill)
            await asyncio.to_thread(victim.start)
        account.over = True
        async with asyncio.timeout(60):
            await asyncio.gather(*tasks)
        await drain(first.port, queue, account)

    assert max(account.read.values()) == 1
    assert set(account.read) <= account.put | account.unsure_puts
    assert len(account.outstanding) <= account.unsure_reads <= CLIENTS * KILLS
    assert account.read.total() > 1000
