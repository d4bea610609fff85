"""Topics get more partitions as they fill."""

import asyncio

import pytest

from doors.http.peer import Node, running_node
from doors.http.test_report import consume, consumer, produce, producer
from nuncius.broker.limits import Limits
from nuncius.broker.model import Placed
from nuncius.doors.http.queue_report import growth
from racing import until


async def partitions(node: Node, topic: str = "A") -> list[int]:
    (found,) = await node.broker.topics.find([topic])
    return [each.next_offset for each in found.partitions]


async def test_one_more_each_time(dsn: str) -> None:
    """With a threshold of 10, the 11th message brings the second partition, the 21st the third."""
    async with running_node(dsn, threshold=10) as node:
        number = await producer(node)
        counts = []
        for message in range(32):
            await produce(node, number, str(message))
            counts.append(len(await partitions(node)))
        assert counts == [1] * 10 + [2] * 10 + [3] * 10 + [4] * 2


async def test_never_within_a_batch(dsn: str) -> None:
    """A batch is placed by the partitions there were when it came; then the topic grows, by one."""
    async with running_node(dsn, threshold=10) as node:
        await node.post("/v1/topics/A/messages/batch", {"messages": [{"body": "x"}] * 100})
        assert await partitions(node) == [100, 0]
        keyed = [{"body": "x", "key": str(n)} for n in range(50)]
        await node.post("/v1/topics/A/messages/batch", {"messages": keyed})
        now = await partitions(node)
        assert now[2:] == [0]
        assert sum(now) == 150


async def test_growth_under_load(dsn: str) -> None:
    """With many producers at two nodes, consumers get every message once, in order within a partition."""
    async with running_node(dsn, threshold=20) as node, running_node(dsn, threshold=20) as other:
        number, reader = await producer(node), await consumer(node)
        total = 240
        todo = iter(range(total))
        taken: list[str] = []

        async def send(at: Node) -> None:
            for message in todo:
                assert (await produce(at, number, str(message))).status == 200

        async def receive(at: Node) -> None:
            while len(taken) < total:
                answer = await consume(at, reader)
                if answer.status == 200:
                    taken.append(answer.json["message"])

        async with asyncio.timeout(60):
            await asyncio.gather(
                *(send(each) for each in (node, other) for _ in range(4)), receive(node), receive(other)
            )
        assert sorted(taken, key=int) == [str(n) for n in range(total)]
        assert (await consume(node, reader)).status == 400
        now = await partitions(node)
        assert sum(now) == total
        assert total // 20 - 2 <= len(now) <= total // 20


async def test_limits_and_switch(dsn: str) -> None:
    """A topic has no more partitions than allowed, and does not grow at all with a threshold of 0."""
    async with running_node(dsn, threshold=1, limits=Limits(max_partitions=3)) as node:
        number = await producer(node)
        for message in range(12):
            assert (await produce(node, number, str(message))).status == 200
        assert len(await partitions(node)) == 3
    async with running_node(dsn, threshold=0) as node:
        await node.post("/v1/topics/B/messages/batch", {"messages": [{"body": "x"}] * 100})
        assert await partitions(node, "B") == [100]


async def test_as_large_as_it_can_be(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that may not grow any further is not asked about again; one that is made anew, is."""
    async with running_node(dsn, threshold=1, limits=Limits(max_partitions=2)) as node:
        fullness = node.broker.actors.fullness
        asked: list[str] = []

        async def counted(topic: str) -> tuple[dict[int, int], int]:
            asked.append(topic)
            return await fullness(topic)

        monkeypatch.setattr(node.broker.actors, "fullness", counted)

        async def is_full() -> bool:
            await node.post("/v1/topics/A/messages", {"body": "x"})
            return len(await partitions(node)) == 2

        async def is_left_alone() -> bool:
            before = len(asked)
            await node.post("/v1/topics/A/messages", {"body": "x"})
            return len(asked) == before

        for _ in range(2):
            await until(is_full)
            await until(is_left_alone)  # it has heard of its own growth, too
            await node.delete("/v1/topics/A")


async def test_purged_messages_do_not_count(dsn: str) -> None:
    """It is about messages that are there, not about all there ever were."""
    async with running_node(dsn, threshold=10) as node:
        for _ in range(5):
            await node.post("/v1/topics/A/messages/batch", {"messages": [{"body": "x"}] * 8})
            await node.post("/v1/topics/A/purge")
        assert len(await partitions(node)) == 1


async def test_what_goes_wrong_is_not_the_producers_problem(
    dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that goes while it grows is only mentioned in the log; memory for topics is bounded."""
    monkeypatch.setattr(growth, "MOST_TOPICS", 2)
    async with running_node(dsn, threshold=10) as node:
        made = node.door.desk.growth
        for topic in ("x", "y", "z"):
            assert not made.is_due(topic, Placed(1, 5, 0), 1)
        assert len(made._topics) == 1  # noqa: SLF001
        assert made.is_due("z", Placed(1, 50, 0), 1)
        assert not made.is_due("z", Placed(1, 51, 0), 1), "one is enough"
        await made.grow("z")  # there is no such topic: nothing to do
        assert not made.is_due("z", Placed(1, -1, 1), 1)

        async def fail(topic: str) -> tuple[dict[int, int], int]:
            await node.broker.topics.existing("nowhere")
            return {}, len(topic)

        monkeypatch.setattr(node.broker.actors, "fullness", fail)
        await made.grow("z")
        assert "did not grow" in caplog.text
