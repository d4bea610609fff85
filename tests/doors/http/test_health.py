"""Signs of life, metrics, and who has been silent for too long."""

import asyncio
import logging
import os
import signal
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from doors.http.peer import Node
from doors.http.test_report import consume, consumer, produce, producer
from nuncius.broker import Broker
from nuncius.doors.http.web import pages as plain
from nuncius.store.driver import Connection
from racing import backends, until


async def samples(node: Node) -> dict[str, float]:
    """The metrics by name and labels, as Prometheus would read them."""
    text = (await node.get("/metrics")).content.decode()
    return {
        ",".join([sample.name, *(f"{k}={v}" for k, v in sorted(sample.labels.items()))]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_signs_of_life(node: Node) -> None:
    """Alive is a node that answers, ready one whose store does."""
    for path, text in (("/livez", b"ok\n"), ("/readyz", b"ready\n")):
        answer = await node.get(path)
        assert (answer.status, answer.content) == (200, text)


async def test_a_store_that_hangs(node: Node, observer: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks whether the node is ready is told that it is not; the node is alive, and ready again later."""
    monkeypatch.setattr(plain, "READY_SECONDS", 0.3)
    assert (await node.get("/readyz")).status == 200
    pids = await backends(observer, "nuncius pool")
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(60):
            assert (await node.get("/readyz")).status == 503
            assert (await node.get("/livez")).status == 200
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    async def is_ready() -> bool:
        return (await node.get("/readyz")).status == 200

    await until(is_ready)


async def test_metrics(node: Node) -> None:
    """They parse, and count right: requests, their times, messages, batches and depths."""
    one, two = await producer(node), await consumer(node)
    for number in range(3):
        await produce(node, one, str(number))
    await consume(node, two)
    await node.get("/v1/topics/none")
    await node.get("/nothing")
    await node.post("/v1/queues", {"name": "q"})
    await node.post("/v1/queues/q/messages/batch", {"messages": [{"body": "x"}] * 2})
    await node.post("/v1/queues/q/take", {})
    found = await samples(node)
    assert found["nuncius_requests_total,door=http,endpoint=/producer/produce,status=200"] == 3
    assert found["nuncius_requests_total,door=http,endpoint=/v1/topics/{topic},status=404"] == 1
    assert found["nuncius_requests_total,door=http,endpoint=unknown,status=404"] == 1
    latency = "nuncius_request_seconds_{},door=http,endpoint=/producer/produce{}"
    assert found[latency.format("count", "")] == 3
    assert found[latency.format("bucket", ",le=+Inf")] == 3
    assert 0 < found[latency.format("sum", "")] < 60
    assert found["nuncius_messages_in_total,kind=topic"] == 3
    assert found["nuncius_messages_in_total,kind=queue"] == 2
    assert found["nuncius_messages_out_total,kind=consumer"] == 1
    assert 1 <= found["nuncius_combiner_batches_total,combiner=publish"] <= 3
    assert found["nuncius_combiner_rows_total,combiner=publish"] == 3
    assert found["nuncius_topic_messages,topic=A"] == 3
    assert found["nuncius_queue_messages,queue=q"] == 1
    assert found["nuncius_accepted_bytes"] == 0


async def test_health(node: Node, connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
    """Who was silent for too long is shown, and told once in the log; who comes back is active again."""
    one, two = await producer(node), await consumer(node)
    await produce(node, one, "x")
    health = (await node.get("/v1/health")).json
    assert (health["inactive_after"], health["inactive"]) == (300, 0)
    assert {(each["kind"], each["id"]) for each in health["actors"]} == {("producer", one), ("consumer", two)}
    assert (await node.get("/v1/health?inactive=true")).json["actors"] == []
    await connection.execute(
        "update nuncius.activity set last_active = last_active - interval '301 s' where kind = 'producer'"
    )
    with caplog.at_level(logging.WARNING):
        assert await node.broker.actors.check() == 1
        assert await node.broker.actors.check() == 0
    (said,) = [record.__dict__ for record in caplog.records if record.message == "actors are inactive"]
    assert (said["kind"], said["count"], said["ids"]) == ("producer", 1, str(one))
    (silent,) = (await node.get("/v1/health?inactive=true")).json["actors"]
    assert (silent["kind"], silent["id"], silent["active"]) == ("producer", one, False)
    assert (await node.get("/v1/health?limit=1")).json["actors"] == [silent]
    await produce(node, one, "y")
    assert (await node.get("/v1/health")).json["inactive"] == 0
    await connection.execute("update nuncius.activity set last_active = last_active - interval '1 h'")
    health = (await node.get("/v1/health?limit=1")).json
    assert (health["inactive"], len(health["actors"])) == (2, 1)
    caplog.clear()
    assert await node.broker.actors.check() == 2, "it may fall silent again"
    assert len(caplog.records) == 2, "a line for each kind, however many there are"


async def test_brokers_are_actors(node: Node, connection: Connection) -> None:
    """A broker that was not heard for long is inactive; one that was removed is not mentioned."""
    number = (await node.post("/broker", {"port": 1100})).json["broker_id"]
    await connection.execute("update nuncius.nodes set last_heard = now() - interval '10 min'")
    (broker,) = (await node.get("/v1/health?inactive=true")).json["actors"]
    assert (broker["kind"], broker["id"]) == ("broker", number)
    await node.delete("/broker/remove", {"broker_id": number})
    assert (await node.get("/v1/health")).json["actors"] == []


async def test_status_shows_who_is_inactive(broker: Broker, connection: Connection) -> None:
    """The facts about a node name them."""
    await broker.actors.register_producer("A")
    await broker.actors.flush()
    assert (await broker.status())["inactive"] == []
    await connection.execute("update nuncius.activity set last_active = now() - interval '1 h'")
    inactive: Any = (await broker.status())["inactive"]
    assert [(each["kind"], each["id"]) for each in inactive] == [("producer", 1)]


async def test_activity_that_cannot_be_written_is_kept(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written down with the next."""
    broker.actors.touch("producer", 7)

    async def fail(*_: object) -> None:
        raise TimeoutError

    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "query", fail)
        with pytest.raises(TimeoutError):
            await broker.actors.flush()
    assert [each.actor_id for each in await broker.actors.health()] == [7]


async def test_old_traces_are_tidied(broker: Broker, connection: Connection) -> None:
    """Keys are kept for a day; the activity of those who are gone, a while."""
    await broker.actors.register_producer("A")
    number = await broker.actors.register_consumer("A")
    await broker.topics.publish("A", [b"x", b"y"])
    who = await broker.actors.consumers.find(str(number))
    await broker.consuming.consume(who, key="k")
    await broker.actors.flush()
    assert await broker.actors.tidy() == 0
    await connection.execute("update nuncius.consumed set consumed_at = now() - interval '2 days'")
    await connection.execute("update nuncius.activity set last_active = now() - interval '2 h'")
    assert await broker.actors.tidy() == 1
    await broker.topics.delete("A")
    assert await broker.actors.tidy() == 2
