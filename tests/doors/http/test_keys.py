"""Idempotency keys: one key stands for one request."""

import asyncio
from typing import Any

import pytest

from doors.http.peer import Node

TOPIC = "/v1/topics/t/messages"
QUEUE = "/v1/queues/q/messages"


@pytest.fixture
async def queue(node: Node) -> Node:
    """A node with a queue."""
    await node.post("/v1/queues", {"name": "q"})
    return node


async def stored(node: Node) -> int:
    """Return how many messages are in the topic and the queue."""
    topics = (await node.get("/v1/topics")).json["topics"]
    queues = (await node.get("/v1/queues")).json["queues"]
    return sum(each["messages"] for each in (*topics, *queues))


@pytest.mark.parametrize(
    ("path", "body", "other"),
    [
        (TOPIC, {"body": "a"}, {"body": "b"}),
        (TOPIC, {"body": "a"}, {"body": "a", "key": "k"}),
        (TOPIC, {"body": "a"}, {"body": "a", "headers": {"x": "y"}}),
        (f"{TOPIC}/batch", {"messages": [{"body": "a"}]}, {"messages": [{"body": "a"}, {"body": "b"}]}),
        (f"{TOPIC}/batch", {"messages": [{"body": "a"}]}, {"messages": [{"body": "a"}], "partition": 1}),
        (f"{TOPIC}/raw", b"a", b"b"),
        (QUEUE, {"body": "a"}, {"body": "a", "priority": 9}),
        (f"{QUEUE}/batch", {"messages": [{"body": "a"}]}, {"messages": [{"body": "b"}]}),
        (f"{QUEUE}/raw", b"a", b""),
    ],
)
async def test_another_request(queue: Node, path: str, body: Any, other: Any) -> None:
    """A key that was sent before with another request is a 422, and nothing is stored. The first request may
    be repeated all the same."""
    assert (await queue.post(path, body, Idempotency_Key="k")).status == 201
    before = await stored(queue)
    answer = await queue.post(path, other, Idempotency_Key="k")
    assert (answer.status, answer.json["error"]) == (422, "key_reused")
    assert (await queue.post(path, body, Idempotency_Key="k")).status == 201
    assert await stored(queue) == before
    assert (await queue.post(path, other, Idempotency_Key="l")).status == 201
    assert await stored(queue) > before


async def test_the_same_request(node: Node) -> None:
    """The order of its fields and its blanks are of no matter."""
    for body in (b'{"body":"a","key":"k"}', b'{ "key": "k", "encoding": "utf-8", "body": "a" }'):
        assert (await node.post(TOPIC, body, Idempotency_Key="k")).status == 201
    found = (await node.get("/v1/topics/t/partitions/1/messages")).json["messages"]
    assert [each["body"] for each in found] == ["a"]


async def test_two_requests_at_once(node: Node) -> None:
    """Of different requests that claim a key at the same time one is stored, the others are refused."""
    answers = await asyncio.gather(
        *(node.post(TOPIC, {"body": f"{number % 4}"}, Idempotency_Key="k") for number in range(24))
    )
    found = (await node.get("/v1/topics/t/partitions/1/messages")).json["messages"]
    assert len(found) == 1
    winner = int(found[0]["body"])
    for number, answer in enumerate(answers):
        assert answer.status == (201 if number % 4 == winner else 422)


async def test_a_key_of_the_report(node: Node) -> None:
    """In the report's API it is a failure as any other."""
    number = (await node.post("/producer/register", {"topic": "A"})).json["producer_id"]
    for message, status in (("a", 200), ("b", 400), ("a", 200)):
        fields = {"topic": "A", "producer_id": number, "message": message}
        answer = await node.post("/producer/produce", fields, Idempotency_Key="k")
        assert answer.status == status
    assert (await node.get("/v1/topics/A")).json["messages"] == 1
