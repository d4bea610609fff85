"""What a node tells about itself: rates, connections, an overview, metrics."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from doors.http.peer import Node
from doors.http.test_health import samples
from nuncius.broker import future
from nuncius.broker.model import READ_ONLY, Letter
from nuncius.broker.observe import facts_queues
from nuncius.client import AsyncClient
from nuncius.doors.http.watching import metrics_store
from nuncius.doors.stomp.door import StompDoor
from nuncius.node.shared_port import TelestoDoor
from racing import until

SECONDS = 60.0


@dataclass(slots=True)
class Doors:
    node: Node
    telesto: int
    stomp: int


@pytest.fixture
async def doors(node: Node) -> AsyncIterator[Doors]:
    """A node with more doors than one."""
    telesto, stomp = TelestoDoor(node.broker), StompDoor(node.broker)
    ports = [await door.open("127.0.0.1", 0) for door in (telesto, stomp)]
    yield Doors(node, *ports)
    await telesto.close()
    await stomp.close()


@asynccontextmanager
async def stomp_client(port: int, login: str, frames: str = "") -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"CONNECT\naccept-version:1.2\nhost:h\nlogin:{login}\n\n\0".encode())
    async with asyncio.timeout(SECONDS):
        assert (await reader.readuntil(b"\0")).startswith(b"CONNECTED")
    writer.write(frames.encode())
    yield reader
    writer.close()


async def test_connections(doors: Doors) -> None:
    """Of every door: who it is, what it speaks and may do, since when, and what went over it."""
    url = f"nuncius://127.0.0.1:{doors.telesto}"
    await doors.node.broker.clients.register("reader", READ_ONLY)
    async with (
        AsyncClient(url, name="reader") as client,
        stomp_client(doors.stomp, "padua"),
    ):
        await client.ping()
        found = (await doors.node.get("/v1/connections")).json
        assert found["counts"] == {"http": 1, "telesto": 0, "native": 1, "stomp": 1}
        by_door = {each["door"]: each for each in found["connections"]}
        native, stomp, http = by_door["native"], by_door["stomp"], by_door["http"]
        assert (native["identity"], native["mode"], native["speaks"]) == ("reader", "read only", "native")
        assert (stomp["identity"], stomp["mode"], stomp["speaks"]) == ("padua", "full", "stomp")
        assert (http["speaks"], http["bytes_out"]) == ("http", None)
        assert native["bytes_in"] > 0
        assert native["bytes_out"] > 0
        assert stomp["peer"].startswith("127.0.0.1:")
        assert stomp["since"] <= stomp["last_active"]
        only = (await doors.node.get("/v1/connections?door=stomp")).json["connections"]
        assert [each["door"] for each in only] == ["stomp"]
        assert (await doors.node.get("/v1/connections?door=none")).status == 404


async def test_sending_somebody_away(doors: Doors) -> None:
    """A connection ends when it is deleted, and is gone from the list."""
    async with stomp_client(doors.stomp, "x") as reader:
        (stomp,) = (await doors.node.get("/v1/connections?door=stomp")).json["connections"]
        assert (await doors.node.delete(f"/v1/connections/{stomp['id']}")).status == 204
        async with asyncio.timeout(SECONDS):
            assert await reader.read() == b""
        assert (await doors.node.delete(f"/v1/connections/{stomp['id']}")).status == 404
    assert (await doors.node.delete("/v1/connections/nonsense")).status == 404


async def test_sending_an_http_client_away(node: Node) -> None:
    """One that is idle is closed; one that asks gets its answer first."""
    idle = await node.connect()
    await idle.send("GET", "/livez")
    await idle.answer()
    asking = await node.connect()
    await asking.send("GET", "/v1/connections")
    first, second = (await asking.answer()).json["connections"]
    await asking.send("DELETE", f"/v1/connections/{first['id']}")
    assert (await asking.answer()).status == 204
    async with asyncio.timeout(SECONDS):
        assert await idle.reader.read() == b""
    idle.close()
    await asking.send("DELETE", f"/v1/connections/{second['id']}")
    assert (await asking.answer()).status == 204, "its own connection"
    async with asyncio.timeout(SECONDS):
        assert await asking.reader.read() == b""
    asking.close()


async def test_stats(doors: Doors) -> None:
    """Totals and rates by door and kind, busy queues, and how long the store takes."""
    node = doors.node
    async with AsyncClient(f"nuncius://127.0.0.1:{doors.telesto}") as client:
        await client.publish("t", "x")
        await client.create_queue("q")
        await client.put("q", "y")
    await node.post("/v1/topics/t/messages", {"body": "z"})
    stats = (await node.get("/v1/stats?seconds=60")).json
    assert stats["messages"]["published"]["total"] == 2
    assert stats["doors"]["native"]["messages"]["published"]["total"] == 1
    assert stats["doors"]["http"]["messages"]["published"]["total"] == 1
    assert stats["doors"]["native"]["messages"]["published"]["rate"] > 0
    assert "taken" not in stats["doors"]["native"]["messages"]
    (queue,) = stats["queues"]
    assert (queue["name"], queue["taken"]) == ("q", 0)
    assert queue["put"] > 0
    publish = next(each for each in stats["procedures"] if each["name"] == "publish")
    assert (publish["rows"], 0 < publish["p50_ms"] <= publish["p99_ms"]) == (2, True)
    assert (await node.get("/v1/stats?seconds=61")).status == 400


async def test_deliveries_and_acknowledgements_over_stomp(doors: Doors) -> None:
    """An entry that a subscriber gets is delivered, and one that it acknowledges is acknowledged."""
    reader, writer = await asyncio.open_connection("127.0.0.1", doors.stomp)
    writer.write(
        b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
        b"SUBSCRIBE\nid:0\ndestination:/topic/t\nack:client-individual\n\n\0"
        b"SEND\ndestination:/topic/t\n\nx\0"
    )
    async with asyncio.timeout(SECONDS):
        while not (frame := await reader.readuntil(b"\0")).lstrip(b"\n").startswith(b"MESSAGE"):
            pass
        ack = next(line for line in frame.split(b"\n") if line.startswith(b"ack:")).removeprefix(b"ack:")
        writer.write(b"ACK\nid:" + ack + b"\nreceipt:r\n\n\0")
        while not (await reader.readuntil(b"\0")).lstrip(b"\n").startswith(b"RECEIPT"):
            pass
    writer.close()
    totals = doors.node.broker.counters.totals
    assert {kind: totals["stomp", kind] for kind in ("published", "delivered", "acked")} == {
        "published": 1,
        "delivered": 1,
        "acked": 1,
    }


async def test_overview(node: Node) -> None:
    """Figures, deepest queues, lags, and what somebody should look at."""
    await node.post("/v1/queues", {"name": "dead/q"})
    await node.post("/v1/queues/dead%2Fq/messages", {"body": "x"})
    await node.post("/v1/topics/t/subscriptions", {"name": "s"})
    await node.post("/v1/topics/t/messages", {"body": "x"})
    seen = (await node.get("/v1/overview?most=1")).json
    assert (seen["figures"]["messages"], seen["figures"]["entries"], seen["figures"]["lag"]) == (1, 1, 1)
    assert [(each["queue"], each["messages"]) for each in seen["queues"]] == [("dead/q", 1)]
    assert [(each["subscriber"], each["lag"]) for each in seen["subscriptions"]] == [("s", 1)]
    assert any("dead-lettered" in each["text"] for each in seen["alarms"])


async def test_metrics_of_the_node_and_the_store(doors: Doors) -> None:
    """Messages by door and kind, batches by procedure, lag, age and sizes."""
    node = doors.node
    async with AsyncClient(f"nuncius://127.0.0.1:{doors.telesto}") as client:
        await client.publish("t", "x")
        await client.create_queue("q")
        await client.put("q", "y")
        await client.subscribe("t", "s", start="earliest")
        found = await samples(node)
    assert found["nuncius_connections,door=native"] == 1
    assert found["nuncius_messages_total,door=native,kind=published"] == 1
    assert found["nuncius_batch_seconds_count,procedure=publish"] == 1
    assert found["nuncius_batch_seconds_bucket,le=+Inf,procedure=publish"] == 1
    assert found["nuncius_topic_published_messages_total,topic=t"] == 1
    assert found["nuncius_subscription_lag_messages,subscriber=s,topic=t"] == 1
    assert 0 <= found["nuncius_queue_oldest_message_age_seconds,queue=q"] < 60
    assert found["nuncius_store_up"] == 1
    assert found["nuncius_store_size_bytes"] > 0
    assert found["nuncius_queues"] == 1


async def test_names_in_labels_are_bounded(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many the shallow ones are counted together."""
    monkeypatch.setattr(metrics_store, "MOST_NAMES", 2)
    for number in range(4):
        queue = await node.broker.queues.create(f"q{number}")
        stored, done = future.new()
        node.broker.queues.put_soon(queue.queue_id, [Letter(b"x")] * (number + 1), done)
        await stored
        await node.broker.topics.publish(f"t{number}", [b"x"] * (number + 1))
    found = await samples(node)
    for kind in ("queue", "topic"):
        shown = {name: value for name, value in found.items() if name.startswith(f"nuncius_{kind}_messages,")}
        assert shown == {
            f"nuncius_{kind}_messages,{kind}={kind[0]}3": 4,
            f"nuncius_{kind}_messages,{kind}={kind[0]}2": 3,
            f"nuncius_{kind}_messages,{kind}=_others": 3,
        }


async def test_metrics_without_a_store(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come all the same, say that the store is down, and keep its last figures."""
    monkeypatch.setattr(metrics_store, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(metrics_store, "RESPITE", 0)
    monkeypatch.setattr(facts_queues, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(facts_queues, "RESPITE", 0)
    await node.broker.queues.create("q")
    assert (await samples(node))["nuncius_store_up"] == 1

    async def silent(*_: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(node.broker.store, "query", silent)
        patched.setattr(metrics_store, "ANSWER_SECONDS", 0.1)
        found = await samples(node)
    assert (found["nuncius_store_up"], found["nuncius_queues"]) == (0, 1)
    assert (await samples(node))["nuncius_store_up"] == 1


async def test_a_store_that_is_slow_to_look_through_is_up(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that takes too long says nothing about whether the store answers; and a store that was away is
    up as soon as it answers again."""
    monkeypatch.setattr(metrics_store, "FRESH_SECONDS", 0.0)
    await node.broker.queues.create("q")
    query = node.broker.store.query
    is_away = False

    async def slow(sql: str, *arguments: object) -> object:
        if is_away or sql != "select 1":
            await asyncio.Event().wait()
        return await query(sql, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(node.broker.store, "query", slow)
        patched.setattr(metrics_store, "ANSWER_SECONDS", 0.1)
        assert (await samples(node))["nuncius_store_up"] == 1
        is_away = True
        assert (await samples(node))["nuncius_store_up"] == 0
    assert (await samples(node))["nuncius_store_up"] == 1


async def test_the_process_is_among_the_metrics(node: Node) -> None:
    """Memory, processor time and open files, by the names that every program uses."""
    found = await samples(node)
    assert found["process_resident_memory_bytes"] > 1 << 20
    assert found["process_cpu_seconds_total"] > 0
    assert found["process_open_fds"] > 3


async def test_only_open_listeners(node: Node) -> None:
    """A door that is closed is not among the listeners; one that is opened is."""
    door = TelestoDoor(node.broker)
    assert list((await node.get("/v1/stats")).json["doors"]) == ["http"]
    await door.open("127.0.0.1", 0)
    assert sorted((await node.get("/v1/stats")).json["doors"]) == ["http", "native", "telesto"]
    await door.close()


async def test_consumers(doors: Doors) -> None:
    """Queues and subscriptions say how many connections consume from them, by whichever door, as long as they
    do."""
    node = doors.node
    queue = await node.broker.queues.create("served")
    seen: list[object] = []

    async def are(queues: list[object], subscriptions: list[object]) -> bool:
        seen[:] = [(await node.get("/v1/consumers")).json]
        return seen == [{"queues": queues, "subscriptions": subscriptions, "missing": []}]

    async with (
        AsyncClient(f"nuncius://127.0.0.1:{doors.telesto}") as client,
        stomp_client(doors.stomp, "padua", "SUBSCRIBE\nid:1\ndestination:/queue/served\n\n\0"),
    ):
        reading = await client.subscribe("news", "reader")
        waiting = [
            asyncio.ensure_future(work)
            for work in (client.take("served", wait=60), reading.next_batch(timeout=60))
        ]
        over_http = [await node.connect() for _ in range(2)]
        await over_http[0].send("POST", "/v1/queues/served/take", {"wait": 60})
        await over_http[1].send("GET", "/v1/topics/news/subscriptions/reader/events")
        number = (await node.broker.subscriptions.find("news", "reader")).subscription_id
        await until(lambda: are([{"id": queue.queue_id, "consumers": 3}], [{"id": number, "consumers": 2}]))
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for peer in over_http:
            peer.close()
    await until(lambda: are([], []))
