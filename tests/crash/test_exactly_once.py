"""Publishers, subscribers and the node are killed again and again, and answers get lost: in the end every
subscriber has every message once, in order."""

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from crash import pubsub_programs
from nuncius import testing
from nuncius.client.zeromq import PubSubClient
from racing import until

PUBLISHERS = ("pub-0", "pub-1", "pub-2")
SUBSCRIBERS = ("sub-0", "sub-1", "sub-2")
AWAY = "away"  # subscribes at the beginning and comes back at the end
TOPIC = "news"
EACH = 60  # messages of a publisher
VICTIMS = ("node", "node", *PUBLISHERS, *SUBSCRIBERS)
SECONDS = 400.0
ONE_IN = 25  # answers that get lost


class LossyProxy:
    """Forwards bytes. Every now and then it loses an answer, and all that would follow on that connection."""

    def __init__(self, port: int, dice: random.Random) -> None:
        self._target = port
        self._dice = dice
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.answers = 0
        self.lost = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            node_reader, node_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()  # it was killed
            return
        ways = {
            asyncio.ensure_future(self._requests(reader, node_writer)),
            asyncio.ensure_future(self._answers(node_reader, writer)),
        }
        self._tasks |= ways
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        self._tasks -= ways
        writer.transport.abort()
        node_writer.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        losing = False
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                self.answers += 1
                if not losing and self._dice.randrange(ONE_IN) == 0:
                    losing = True
                    self.lost += 1
                if not losing:
                    writer.write(data)


class Troupe:
    """The programs that run, each in a process of its own, and start again when they were killed."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self._directory = directory
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, name: str) -> None:
        verb, how_many = ("publish", EACH) if name in PUBLISHERS else ("subscribe", EACH * len(PUBLISHERS))
        self._running[name] = await asyncio.create_subprocess_exec(
            *(sys.executable, pubsub_programs.__file__, verb, self._url, str(self._directory)),
            *(name, TOPIC, str(how_many)),
        )

    async def kill(self, name: str) -> None:
        process = self._running[name]
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await self.start(name)

    async def finish(self) -> None:
        codes = await asyncio.gather(*(process.wait() for process in self._running.values()))
        assert set(codes) == {0}

    async def end(self) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def make_topic(dsn: str, partitions: int) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.fetch("select nuncius.create_topic($1, $2)", TOPIC, partitions)
    await connection.fetch("select nuncius.set_retention($1, 'subscribers')", TOPIC)
    await connection.close()


def subscribe(url: str, directory: Path, name: str) -> None:
    with PubSubClient(name, url, directory=directory) as client:
        assert client.subscribe(TOPIC) == -1


def check(file: Path) -> list[str]:
    """Ids without a gap, every message of every publisher once and in order, all that were acknowledged."""
    lines = file.read_text().splitlines()
    ids, texts = zip(*(line.split(" ", 1) for line in lines), strict=True)
    assert ids == tuple(str(n) for n in range(EACH * len(PUBLISHERS)))
    for publisher in PUBLISHERS:
        mine = [text.split()[1] for text in texts if text.startswith(publisher)]
        assert mine == [str(n) for n in range(EACH)]
    for acknowledged in file.parent.glob("*.acknowledged"):
        assert set(acknowledged.read_text().splitlines()) <= set(texts)
    return list(texts)


@pytest.mark.parametrize("partitions", [1, 3])
async def test_exactly_once(tmp_path: Path, partitions: int) -> None:
    """Every subscriber's file holds exactly the messages put since it subscribed, once, in order, and so does
    that of one who was away all the time. In a topic with one partition all see the same order."""
    dice = random.Random(partitions)
    port = testing.free_port()
    with testing.broker(f"--zeromq-port={port}") as broker:
        await make_topic(broker.dsn, partitions)
        for name in (*SUBSCRIBERS, AWAY):
            await asyncio.to_thread(subscribe, f"tcp://127.0.0.1:{port}", tmp_path, name)
        proxy = LossyProxy(port, dice)
        async with proxy.running(), asyncio.timeout(SECONDS):
            troupe = Troupe(f"tcp://127.0.0.1:{proxy.port}", tmp_path)
            try:
                for name in (*PUBLISHERS, *SUBSCRIBERS):
                    await troupe.start(name)
                for victim in dice.sample(VICTIMS, len(VICTIMS)):
                    target = proxy.answers + dice.randint(5, 50)
                    await until(lambda target=target: proxy.answers >= target, SECONDS)  # type: ignore[misc]
                    if victim == "node":
                        await asyncio.to_thread(broker.kill)
                        await asyncio.to_thread(broker.start)
                    else:
                        await troupe.kill(victim)
                await troupe.finish()
                await troupe.start(AWAY)
                await troupe.finish()
            finally:
                await troupe.end()
    assert proxy.lost > 0
    orders = [check(tmp_path / f"{name}.txt") for name in (*SUBSCRIBERS, AWAY)]
    if partitions == 1:
        assert all(order == orders[0] for order in orders)
