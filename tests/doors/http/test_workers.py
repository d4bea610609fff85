"""Two brokers that are workers of one node: whichever is asked, the node answers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from doors.http.peer import Node, running_node
from doors.http.test_health import samples
from nuncius.broker.model import Letter
from nuncius.broker.observe.counters_model import RingState


@pytest.fixture
async def pair(dsn: str, tmp_path: Path) -> AsyncIterator[tuple[Node, Node]]:
    async with running_node(dsn) as one, running_node(dsn) as two:
        for number, each in enumerate((one, two), 1):
            await each.broker.siblings.open(tmp_path, number, 2)
        yield one, two
        for each in (one, two):
            each.broker.siblings.close()


async def test_percentiles_are_of_all_batches_together(pair: tuple[Node, Node]) -> None:
    """A worker with few slow batches does not make the node look slow, nor disappear behind a fast one."""
    for node, batches, seconds in zip(pair, (196, 4), (0.0008, 0.8), strict=True):
        await node.broker.topics.publish("t", [b"x"])
        for _ in range(batches):
            node.broker.counters.observer("publish")(seconds, (), ())
    for node in pair:
        procedures = (await node.get("/v1/stats?seconds=60")).json["procedures"]
        publish = next(each for each in procedures if each["name"] == "publish")
        assert (publish["batches"], publish["rows"]) == (2, 2), "as far as they were the store's"
        assert publish["p50_ms"] < 1
        assert publish["p99_ms"] > 500


async def test_rates_of_a_queue_are_summed(pair: tuple[Node, Node]) -> None:
    """A queue that is filled at one worker and emptied at the other has both rates."""
    one, two = pair
    queue = await one.broker.queues.create("q")
    stored: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    one.broker.queues.put_soon(queue.queue_id, [Letter(b"x")], stored.set_result)
    await stored
    assert len(await two.broker.queues.take(queue.queue_id)) == 1
    for node in pair:
        (seen,) = (await node.get("/v1/stats?seconds=60")).json["queues"]
        assert (seen["name"], seen["put"] > 0, seen["taken"] > 0) == ("q", True, True)


async def test_the_ring_is_the_node_s(pair: tuple[Node, Node]) -> None:
    """Keys that any worker has promised to others are the node's, and so is what it keeps of theirs."""
    one, two = pair
    assert (await one.get("/v1/ring")).status == 404
    one.broker.counters.ring = lambda: RingState("h:1", 1, ((5, "h:1"),), ("a", "b"), 10)
    two.broker.counters.ring = lambda: RingState("h:1", 2, ((5, "h:1"), (3, "h:2")), ("b", "c"), 5)
    for node in pair:
        seen = (await node.get("/v1/ring")).json
        assert (seen["version"], [place["place"] for place in seen["places"]]) == (2, [3, 5])
        assert (seen["leases"], sorted(seen["hot_keys"]), seen["cached_bytes"]) == (3, ["a", "b", "c"], 15)


async def test_asking_each_other_is_not_counted(pair: tuple[Node, Node]) -> None:
    """Only what comes through the door is a request or a connection."""
    one, _ = pair
    for _ in range(3):
        await one.get("/v1/stats")
    found = await samples(one)
    asked = {name: value for name, value in found.items() if name.startswith("nuncius_requests_total")}
    assert asked == {"nuncius_requests_total,door=http,endpoint=/v1/stats,status=200,worker=1": 3}
    assert found["nuncius_connections,door=http,worker=2"] == 0
