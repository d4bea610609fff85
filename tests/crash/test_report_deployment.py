"""The report's deployment by processes: a balancer, a write manager, two read managers, three brokers."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from cluster.http_caller import Caller
from cluster.processes import Process

TOPICS = ("T-1", "T-2", "T-3")
PRODUCERS = ("T-1", "T-2", "T-3", "T-1", "T-2")
CONSUMERS = 3
LEVELS = ("INFO", "WARN", "ERROR")
MOST_BEHIND = 150  # messages; producers wait for the slowest consumer
THRESHOLD = 100
PAUSE = 0.02  # producers and consumers think between requests: the nodes shall be busy, not this machine


@pytest.fixture
def nodes(dsn: str, away: str, tmp_path: Path) -> Iterator[dict[str, Process]]:
    roles = {
        "balancer": ("balancer",),
        "writer": ("writer",),
        "reader 1": ("reader",),
        "reader 2": ("reader",),
        "broker 1": ("broker",),
        "broker 2": ("broker",),
        "broker 3": ("broker", f"--own-store={away}"),
    }
    with ExitStack() as stack:
        made = {
            name: stack.enter_context(process(tmp_path, dsn, name, *arguments)).begin()
            for name, arguments in roles.items()
        }
        yield {name: each.ready() for name, each in made.items()}


def process(directory: Path, dsn: str, name: str, role: str, *arguments: str) -> Process:
    return Process(
        directory / f"{name}.log",
        f"--role={role}",
        f"--store={dsn}",
        f"--partition-threshold={THRESHOLD}",
        *arguments,
    )


class Load:
    """Producers and consumers that repeat what got no answer, and what they have seen."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._numbers = itertools.count(1)
        self.acknowledged: list[str] = []
        self.consumed: list[dict[str, list[str]]] = [{t: [] for t in TOPICS} for _ in range(CONSUMERS)]
        self.ids: list[dict[str, int]] = [{} for _ in range(CONSUMERS)]
        self.moved = asyncio.Event()
        self.enough = asyncio.Event()
        self.failures: Counter[str] = Counter()
        self.done = False

    @property
    def steps(self) -> int:
        return len(self.acknowledged) + sum(len(m) for each in self.consumed for m in each.values())

    def slowest(self) -> int:
        return min(sum(map(len, each.values())) for each in self.consumed)

    async def until(self, condition: Callable[[], bool], seconds: float) -> None:
        """Waits until the condition holds; only a step can change that."""
        async with asyncio.timeout(seconds):
            while not condition():
                self.moved.clear()
                await self.moved.wait()

    async def until_answered(
        self, caller: Caller, method: str, path: str, fields: dict[str, Any], key: str | None
    ) -> dict[str, Any]:
        """Asks again, under the same key, whatever fails."""
        while True:
            try:
                status, answer = await caller.call(method, path, fields, key=key)
            except ConnectionError:
                self.failures["no answer"] += 1
            else:
                if status == 200 or answer["message"] == "No messages left to retrieve":
                    return answer
                self.failures[answer["message"]] += 1
            await asyncio.sleep(0.05)

    async def produce(self, number: int, topic: str) -> None:
        caller = Caller(self.port)
        registered = await self.until_answered(
            caller, "POST", "/producer/register", {"topic_name": topic}, None
        )
        producer = registered["producer_id"]
        n = 0
        while not self.enough.is_set():
            await self.until(lambda: len(self.acknowledged) - self.slowest() <= MOST_BEHIND, 60)
            n += 1
            message = f"2023-03-07 06:27:{n % 60:02} {LEVELS[n % 3]} {topic} producer {number} line {n}"
            fields = {"topic_name": topic, "producer_id": producer, "message": message}
            answer = await self.until_answered(caller, "POST", "/producer/produce", fields, f"{number}-{n}")
            assert answer["message"] == f"Producer ID {producer} published in topic {topic}"
            self.acknowledged.append(message)
            self.moved.set()
            await asyncio.sleep(PAUSE)
        await caller.close()

    async def consume(self, number: int) -> None:
        caller = Caller(self.port)
        ids = self.ids[number]
        for topic in TOPICS:
            answer = await self.until_answered(caller, "POST", "/consumer/register", {"topic": topic}, None)
            ids[topic] = answer["consumer_id"]
        while not self.done:
            for topic in TOPICS:
                fields = {"topic": topic, "consumer_id": ids[topic]}
                key = f"{number}-{next(self._numbers)}"
                answer = await self.until_answered(caller, "GET", "/consumer/consume", fields, key)
                if answer["status"] == "success":
                    self.consumed[number][topic].append(answer["message"])
                    self.moved.set()
            await asyncio.sleep(PAUSE)
        await caller.close()

    async def goes_on(self, steps: int) -> None:
        goal = self.steps + steps
        await self.until(lambda: self.steps >= goal, 30)


async def entries(dsn: str, away: str) -> dict[str, tuple[int, int]]:
    """Where each message is stored; fails if one is stored twice."""
    found: dict[str, tuple[int, int]] = {}
    for store in (dsn, away):
        connection = await asyncpg.connect(store)
        for partition, offset, body in await connection.fetch(
            "select partition_id, entry_offset, body from nuncius.entries"
        ):
            assert body.decode() not in found, f"{body.decode()} is stored twice"
            found[body.decode()] = (partition, offset)
        await connection.close()
    return found


async def under_load(
    nodes: dict[str, Process], dsn: str, away: str, disturb: Callable[[Load], Awaitable[None]]
) -> Load:
    """Five producers and three consumers, while something happens to the nodes. Every acknowledged message is
    consumed once by every consumer, in the order of its partition."""
    load = Load(nodes["balancer"].port)
    setup = Caller(load.port)
    for topic in TOPICS:
        await load.until_answered(setup, "POST", "/producer/register", {"topic": topic}, None)
    async with asyncio.TaskGroup() as tasks:
        producing = [tasks.create_task(load.produce(n, topic)) for n, topic in enumerate(PRODUCERS)]
        for number in range(CONSUMERS):
            tasks.create_task(load.consume(number))
        await load.goes_on(100)
        await disturb(load)
        await load.goes_on(100)
        load.enough.set()
        await asyncio.wait(producing)
        await load.until(lambda: load.slowest() >= len(load.acknowledged), 60)
        load.done = True
    for topic, consumer in [pair for ids in load.ids for pair in ids.items()]:
        fields = {"topic": topic, "consumer_id": consumer}
        answer = await load.until_answered(setup, "GET", "/consumer/consume", fields, None)
        assert answer["message"] == "No messages left to retrieve"
    await setup.close()
    places = await entries(dsn, away)
    for each in load.consumed:
        everything = [message for topic in TOPICS for message in each[topic]]
        assert sorted(everything) == sorted(load.acknowledged)
        for topic in TOPICS:
            by_partition: dict[int, list[int]] = {}
            for message in each[topic]:
                partition, offset = places[message]
                by_partition.setdefault(partition, []).append(offset)
            for offsets in by_partition.values():
                assert offsets == list(range(len(offsets)))
    return load


async def test_every_process_is_killed(nodes: dict[str, Process], dsn: str, away: str) -> None:
    """Each process in turn is killed with -9 and comes back, while producers and consumers go on."""

    async def kill_each(load: Load) -> None:
        for name, node in nodes.items():
            await asyncio.to_thread(node.kill)
            if name not in ("balancer", "writer"):
                await load.goes_on(60)  # without it
            await asyncio.to_thread(node.start)
            await load.goes_on(60)

    load = await under_load(nodes, dsn, away, kill_each)
    named = ("no answer", "Write Manager Failed: ", "Read Manager Failed: ")
    assert [text for text in load.failures if not text.startswith(named)] == []
    connection = await asyncpg.connect(dsn)
    assert await connection.fetchval("select max(partition) from nuncius.partitions") > 1  # it has grown, too
    await connection.close()


async def test_brokers_come_and_go(nodes: dict[str, Process], dsn: str, away: str, tmp_path: Path) -> None:
    """Brokers are added and removed, by request and by starting and stopping, while producers and consumers
    go on; nobody is told of a failure."""
    caller = Caller(nodes["balancer"].port)

    async def change(load: Load) -> None:
        with process(tmp_path, dsn, "broker 4", "broker") as fourth:
            await asyncio.to_thread(fourth.start)
            status, answer = await caller.call("POST", "/broker", {"port": fourth.port})
            assert (status, answer["status"]) == (200, "success")
            for topic in TOPICS:
                assert (await caller.call("POST", "/partition", {"topic_name": topic}))[0] == 200
            await load.goes_on(60)
            assert (await caller.call("DELETE", "/broker/remove", {"broker_id": answer["broker_id"]}))[
                0
            ] == 200
            await load.goes_on(60)
            status, failed = await caller.call("DELETE", "/broker/remove", {"broker_id": 99})
            assert (status, failed["status"]) == (400, "failure")
        await asyncio.to_thread(nodes["broker 2"].stop)
        await load.goes_on(60)
        await asyncio.to_thread(nodes["broker 2"].start)
        await load.goes_on(60)

    load = await under_load(nodes, dsn, away, change)
    assert dict(load.failures) == {}
    await caller.close()
