"""The report's API, in the course's spelling and in the authors', with every text that their clients know."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from doors.http.peer import Answer, Node, running_node
from nuncius.broker.limits import Limits
from nuncius.cluster.dialects import QueueDialect
from nuncius.store.driver import Connection
from nuncius.store.server import embedded
from racing import terminate

SPELLINGS = ("topic", "topic_name")


def failure(answer: Answer, text: str) -> bool:
    return answer.status == 400 and answer.json == {"status": "failure", "message": text}


async def producer(node: Node, topic: str = "A") -> int:
    answer = await node.post("/producer/register", {"topic": topic})
    number: int = answer.json["producer_id"]
    return number


async def consumer(node: Node, topic: str = "A") -> int:
    answer = await node.post("/consumer/register", {"topic": topic})
    number: int = answer.json["consumer_id"]
    return number


async def produce(node: Node, number: int, message: str, topic: str = "A", **more: Any) -> Answer:
    fields = {"topic": topic, "producer_id": number, "message": message, **more}
    return await node.post("/producer/produce", fields)


async def consume(node: Node, number: int, topic: str = "A", **headers: str) -> Answer:
    return await node.get(f"/consumer/consume?topic={topic}&consumer_id={number}", **headers)


@pytest.mark.parametrize("name", ["name", "topic_name"])
async def test_topics(node: Node, name: str) -> None:
    """A topic is made once, and listed in the order of making."""
    for topic in ("B", "A"):
        answer = await node.post("/topics", {name: topic})
        assert answer.status == 200
        assert answer.json["status"] == "success"
        assert topic in answer.json["message"]
    assert failure(await node.post("/topics", {name: "A"}), "Topic already exists")
    answer = await node.get("/topics")
    assert answer.json == {"status": "success", "topics": ["B", "A"], "message": ["B", "A"]}


async def test_the_courses_spelling(node: Node) -> None:
    """Names in `topic`, in the query string of a GET; answers have fields."""
    answer = await node.post("/producer/register", {"topic": "A"})
    assert answer.json["status"] == "success"
    assert answer.json["producer_id"] == 1
    answer = await node.post("/consumer/register", {"topic": "A"})
    assert answer.json["status"] == "success"
    assert answer.json["consumer_id"] == 1
    answer = await produce(node, 1, "héllo")
    assert (answer.status, answer.json) == (200, {"status": "success"})
    answer = await node.get("/size?topic=A&consumer_id=1")
    assert answer.json == {"status": "success", "size": 1}
    answer = await consume(node, 1)
    assert (answer.status, answer.json) == (200, {"status": "success", "message": "héllo"})
    answer = await node.get("/size?topic=A&consumer_id=1")
    assert answer.json == {"status": "success", "size": 0}


async def test_the_authors_spelling(node: Node) -> None:
    """Names in `topic_name`, in a JSON body of a GET as well; answers have the texts that they print."""
    answer = await node.post("/producer/register", {"topic_name": "A"})
    assert answer.json["message"] == "Producer ID 1 registered for topic A"
    answer = await node.post("/consumer/register", {"topic_name": "A"})
    assert answer.json["message"] == "Consumer ID 1 subscribed to topic A"
    answer = await node.post("/producer/produce", {"topic_name": "A", "producer_id": 1, "message": "hello"})
    assert answer.json["message"] == "Producer ID 1 published in topic A"
    assert (await node.get("/size", {"topic_name": "A", "consumer_id": 1})).json["size"] == 1
    answer = await node.get("/consumer/consume", {"topic_name": "A", "consumer_id": 1})
    assert answer.json["message"] == "Consumer ID 1 retrieved message from topic A: hello"
    await node.post("/producer/produce", {"topic_name": "A", "producer_id": "1", "message": "again"})
    answer = await node.post("/consumer/consume", {"topic_name": "A", "consumer_id": "1"})
    assert answer.json["message"] == "Consumer ID 1 retrieved message from topic A: again"


async def test_an_address_that_ends_with_a_slash(node: Node) -> None:
    """Clients that put one more before every path are understood."""
    assert (await node.post("//topics", {"topic_name": "A"})).status == 200
    assert (await node.get("//topics")).json["topics"] == ["A"]
    assert (await node.get("//v1/topics/A")).status == 200
    assert (await node.get("/topics//")).status == 404


@pytest.mark.parametrize("name", SPELLINGS)
async def test_failures(node: Node, name: str) -> None:
    """Every failure is a 400 with the authors' text."""
    await node.post("/topics", {"name": "A"})
    await node.post("/topics", {"name": "B"})
    one, two = await producer(node), await consumer(node)
    absent = "Required fields absent in request"
    for path in ("/topics", "/producer/register", "/producer/produce", "/consumer/register", "/partition"):
        assert failure(await node.post(path, {}), absent)
        assert failure(await node.post(path), absent)
        assert failure(await node.post(path, {name: None}), absent)
        assert failure(await node.post(path, {name: ""}), absent)
    for path in ("/consumer/consume", "/size"):
        assert failure(await node.get(path), absent)
        assert failure(await node.get(path, {name: "A"}), absent)
    assert failure(await node.post("/producer/produce", {name: "A", "producer_id": one}), absent)
    assert failure(await node.post("/consumer/register", {name: "nope"}), "Topic doesn't exist")
    assert failure(await node.post("/partition", {name: "nope"}), "Topic doesn't exist")
    message = {"message": "x", name: "A"}
    for wrong in (99, "99", "x", 0, -1, 2**31, 10**30, 1.5, [1], "9" * 30):
        answer = await node.post("/producer/produce", {**message, "producer_id": wrong})
        assert failure(answer, "Invalid ProducerId")
        for path in ("/consumer/consume", "/size"):
            answer = await node.get(path, {name: "A", "consumer_id": wrong})
            assert failure(answer, "Invalid ConsumerId")
    answer = await node.post("/producer/produce", {"message": "x", name: "B", "producer_id": one})
    assert failure(answer, "ProducerId is not subscribed to the topic")
    for path in ("/consumer/consume", "/size"):
        answer = await node.get(path, {name: "B", "consumer_id": two})
        assert failure(answer, "ConsumerId is not subscribed to the topic")
    answer = await node.get("/consumer/consume", {name: "A", "consumer_id": two})
    assert failure(answer, "No messages left to retrieve")


async def test_bad_requests(node: Node) -> None:
    """Unknown paths, wrong methods, broken JSON and wrong types are failures of the same form, too."""
    await producer(node)
    for method, path in (
        ("GET", "/producer/produce"),
        ("DELETE", "/topics"),
        ("PUT", "/broker"),
        ("PATCH", "/consumer/register"),
    ):
        answer = await node.call(method, path)
        assert failure(answer, f"There is no {method} at this path")
    for body in (
        b"{",
        b"\xff\xff",
        b'{"message": "\\ud800"}',
        b'{"message":' + b"[" * 5000,
        b'{"topic": "A"} x',
    ):
        assert failure(await node.post("/producer/produce", body), "The request body is not valid JSON")
    for content in (b"[]", b'"A"', b"7"):
        answer = await node.post("/producer/produce", content)
        assert failure(answer, "The request body is not a JSON object")
    answer = await node.post("/producer/produce", {"topic": "A", "producer_id": 1, "message": {"a": 1}})
    assert failure(answer, "A name or a message is a string")
    answer = await node.post("/topics", {"name": " A"})
    assert failure(answer, "the name of a topic does not begin or end with a blank")
    answer = await node.get("/consumer/consume?topic=%ff")
    assert answer.status == 400
    assert answer.json["status"] == "failure"
    answer = await produce(node, 1, "x", partition="A.9")
    assert failure(answer, "topic 'A' has no partition 9")
    for wrong in ("one", 0, -1, 2**40):
        answer = await produce(node, 1, "x", partition=wrong)
        assert failure(answer, f"Partition {wrong} doesn't exist")
    key = {"Idempotency-Key": "k" * 300}
    answer = await node.call(
        "POST", "/producer/produce", {"topic": "A", "producer_id": 1, "message": ""}, key
    )
    assert failure(answer, "an Idempotency-Key has 1 to 255 visible ASCII characters")


async def test_a_body_that_is_too_large(dsn: str) -> None:
    """The size of a request is limited, however it comes; so is that of a message."""
    async with running_node(dsn, limits=Limits(max_body=100)) as node:
        number = await producer(node)
        assert (await produce(node, number, "x" * 100)).status == 200
        answer = await produce(node, number, "x" * 101)
        assert failure(answer, "a message has at most 100 bytes, not 101")
        most = node.door.desk.max_request
        answer = await produce(node, number, "x" * most)
        assert failure(answer, f"the body of this request has at most {most} bytes")


async def test_round_robin(node: Node) -> None:
    """Messages go to the partitions in turn, or to the one that is named; consumers read them in turn."""
    one, two = await producer(node), await consumer(node)
    for expected in (2, 3):
        answer = await node.post("/partition", {"topic_name": "A"})
        assert answer.json["message"] == f"Partition A.{expected} added to topic A"
    for number in range(9):
        await produce(node, one, str(number))
    (topic,) = await node.broker.topics.find(["A"])
    assert [each.next_offset for each in topic.partitions] == [3, 3, 3]
    taken = [(await consume(node, two)).json["message"] for _ in range(9)]
    assert {*taken[:3]} == {"0", "1", "2"}
    assert taken[3:6] == [str(int(text) + 3) for text in taken[:3]]
    for number, name in enumerate((2, "2", "A.2")):
        assert (await produce(node, one, f"named {number}", partition=name)).status == 200
    (topic,) = await node.broker.topics.find(["A"])
    assert [each.next_offset for each in topic.partitions] == [3, 6, 3]
    assert [(await consume(node, two)).json["message"] for _ in range(3)] == [f"named {n}" for n in range(3)]


async def test_a_repeated_produce_is_stored_once(node: Node) -> None:
    """With the same Idempotency-Key, of the same producer."""
    one, other, two = await producer(node), await producer(node), await consumer(node)
    for number in (one, one, other):
        fields = {"topic": "A", "producer_id": number, "message": f"of {number}"}
        assert (await node.post("/producer/produce", fields, Idempotency_Key="k")).status == 200
    assert (await consume(node, two)).json["message"] == f"of {one}"
    assert (await consume(node, two)).json["message"] == f"of {other}"
    assert failure(await consume(node, two), "No messages left to retrieve")


async def test_a_repeated_consume_gets_the_same(node: Node) -> None:
    """With the same Idempotency-Key, also at the same time; another key gets the next."""
    one, two = await producer(node), await consumer(node)
    for number in range(4):
        await produce(node, one, str(number))
    answers = await asyncio.gather(*(consume(node, two, Idempotency_Key="k") for _ in range(5)))
    assert {answer.json["message"] for answer in answers} == {"0"}
    assert (await consume(node, two, Idempotency_Key="l")).json["message"] == "1"
    assert (await consume(node, two)).json["message"] == "2"
    assert (await consume(node, two, Idempotency_Key="k")).json["message"] == "0"
    assert (await consume(node, two, Idempotency_Key="m")).json["message"] == "3"
    assert failure(await consume(node, two, Idempotency_Key="n"), "No messages left to retrieve")
    await produce(node, one, "4")
    assert (await consume(node, two, Idempotency_Key="n")).json["message"] == "4"
    await node.broker.topics.purge("A")
    assert failure(await consume(node, two, Idempotency_Key="n"), "No messages left to retrieve")


async def test_consumers_share_a_topic(node: Node) -> None:
    """Every consumer gets every message; one that registers late, too."""
    one, early = await producer(node), await consumer(node)
    await produce(node, one, "a")
    late = await consumer(node)
    for number in (early, late):
        assert (await consume(node, number)).json["message"] == "a"


async def test_bytes_that_are_no_text(node: Node) -> None:
    """What other doors published is shown as well as text can."""
    await node.broker.topics.publish("A", [b"a\xff"])
    two = await consumer(node)
    assert (await consume(node, two)).json["message"] == "a\ufffd"


async def test_brokers(node: Node) -> None:
    """Brokers are added by their port, and removed by their number."""
    answer = await node.post("/broker", {"port": 1100})
    assert answer.json["status"] == "success"
    number = answer.json["broker_id"]
    assert number == 1
    assert answer.json["message"] == "Broker ID 1 created successfully"
    for wrong in (0, 70000, "x", -5):
        assert failure(await node.post("/broker", {"port": wrong}), "Invalid port")
    assert failure(await node.post("/broker", {}), "Required fields absent in request")
    answer = await node.delete("/broker/remove", {"broker_id": number})
    assert answer.json == {"status": "success", "message": "Broker 1 removed"}
    for missing in (77, 10**12, "x"):
        assert failure(await node.delete("/broker/remove", {"broker_id": missing}), "Invalid BrokerId")


async def test_a_topic_that_goes(node: Node) -> None:
    """Producers and consumers end with their topic."""
    one, two = await producer(node), await consumer(node)
    await produce(node, one, "x")
    assert (await consume(node, two)).status == 200
    await node.delete("/v1/topics/A")

    async def refused() -> bool:
        return failure(await produce(node, one, "y"), "Invalid ProducerId")

    async with asyncio.timeout(60):
        while not await refused():
            pass
    assert failure(await consume(node, two), "Invalid ConsumerId")


async def test_a_store_that_breaks(node: Node, observer: Connection) -> None:
    """When connections to the store break, requests are answered all the same."""
    one, two = await producer(node), await consumer(node)
    for number in range(6):
        await produce(node, one, str(number))
    taken = []
    for _ in range(6):
        taken.append((await consume(node, two)).json["message"])
        await terminate(observer, "nuncius%")
    assert taken == [str(number) for number in range(6)]


async def test_a_store_that_is_away(data_dir: Path) -> None:
    """It is a failure of the same form, but says that it is not the client's fault."""
    dsn = (await asyncio.to_thread(embedded.start, data_dir)).dsn
    async with running_node(dsn, patience=0.2) as node:
        one, two = await producer(node), await consumer(node)
        assert (await node.get("/readyz")).status == 200
        await asyncio.to_thread(embedded.stop, data_dir)
        for answer in (await produce(node, one, "x"), await consume(node, two)):
            assert answer.status == 503
            assert answer.json["status"] == "failure"
        assert (await node.get("/readyz")).status == 503
        assert (await node.get("/livez")).status == 200
        assert (await node.get("/v1/topics")).json["error"] == "unavailable"


@pytest.mark.parametrize(
    ("dialect", "topic", "topic_name"),
    [(QueueDialect.AUTO, False, True), (QueueDialect.A1, False, False), (QueueDialect.A2, True, True)],
)
async def test_dialects(dsn: str, dialect: QueueDialect, topic: bool, topic_name: bool) -> None:
    """A message comes as it is, or in a sentence: as the request is spelt, or as the node was told."""
    async with running_node(dsn, dialect=dialect) as node:
        one, two = await producer(node), await consumer(node)
        for name, in_sentences in (("topic", topic), ("topic_name", topic_name)):
            fields = {name: "A", "producer_id": one, "message": "x"}
            said = (await node.post("/producer/produce", fields)).json.get("message")
            assert said == (f"Producer ID {one} published in topic A" if in_sentences else None)
            said = (await node.get("/consumer/consume", {name: "A", "consumer_id": two})).json["message"]
            assert said == (f"Consumer ID {two} retrieved message from topic A: x" if in_sentences else "x")


async def test_bytes_as_base64(node: Node) -> None:
    """A client that asks for base64 gets the very bytes of a message."""
    await node.broker.topics.publish("A", [b"a\xff", b"b\x00"])
    two = await consumer(node)
    answer = await node.get(f"/consumer/consume?topic=A&consumer_id={two}&encoding=base64")
    assert answer.json["message"] == "Yf8="
    fields = {"topic": "A", "consumer_id": two, "encoding": "base64"}
    assert (await node.post("/consumer/consume", fields)).json["message"] == "YgA="
    answer = await node.post("/consumer/consume", {**fields, "encoding": "hex"})
    assert failure(answer, "encoding is utf-8 or base64")
