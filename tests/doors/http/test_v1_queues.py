"""Queues under /v1."""

import asyncio
import base64

from doors.http.peer import Node
from racing import until


async def take(node: Node, **options: object) -> list[str]:
    answer = await node.post("/v1/queues/q/take", options)
    assert answer.status == 200, answer
    return [each["body"] for each in answer.json["messages"]]


async def test_queues(node: Node) -> None:
    """They are made, shown, purged and deleted."""
    assert (await node.post("/v1/queues", {"name": "q"})).json == {"name": "q", "messages": 0, "oldest": None}
    assert (await node.post("/v1/queues", {"name": "q"})).status == 409
    await node.post("/v1/queues/q/messages", {"body": "x"})
    shown = (await node.get("/v1/queues/q")).json
    assert (shown["messages"], shown["oldest"][-1]) == (1, "Z")
    assert (await node.get("/v1/queues")).json == {"queues": [shown], "next": None}
    assert (await node.post("/v1/queues/q/purge")).json == {"removed": 1}
    assert (await node.delete("/v1/queues/q")).status == 204
    for answer in (
        await node.get("/v1/queues/q"),
        await node.delete("/v1/queues/q"),
        await node.post("/v1/queues/q/purge"),
        await node.post("/v1/queues/q/messages", {"body": "x"}),
        await node.post("/v1/queues/q/take", {}),
        await node.get("/v1/queues/q/messages"),
    ):
        assert (answer.status, answer.json["error"]) == (404, "not_found")


async def test_put_and_take(node: Node) -> None:
    """By priority or by age; text and bytes; with headers; one or many."""
    await node.post("/v1/queues", {"name": "q"})
    raw = base64.b64encode(b"\xff").decode()
    messages = [
        {"body": "low", "priority": 1},
        {"body": raw, "encoding": "base64", "priority": 9, "headers": {"a": "b"}},
        {"body": "middle"},
    ]
    answer = await node.post("/v1/queues/q/messages/batch", {"messages": messages})
    assert (answer.status, len(answer.json["ids"])) == (201, 3)
    seen = (await node.get("/v1/queues/q/messages?limit=2")).json["messages"]
    assert [each["body"] for each in seen] == ["low", raw]
    assert (seen[1]["encoding"], seen[1]["headers"], seen[1]["priority"]) == ("base64", {"a": "b"}, 9)
    rest = (await node.get(f"/v1/queues/q/messages?after={seen[1]['id']}")).json["messages"]
    assert [each["body"] for each in rest] == ["middle"]
    assert await take(node, order="age") == ["low"]
    assert await take(node, limit=5) == [raw, "middle"]
    assert await take(node) == []
    await node.post("/v1/queues/q/messages/raw?priority=2", b"bytes", Content_Type="text/plain")
    answer = await node.post("/v1/queues/q/take", {})
    assert answer.json["messages"][0]["headers"] == {"content-type": "text/plain"}
    assert answer.json["messages"][0]["priority"] == 2


async def test_addressed_messages(node: Node) -> None:
    """A message with a receiver is for nobody else, and a taker can ask for a sender."""
    await node.post("/v1/queues", {"name": "q"})
    await node.post("/v1/queues/q/messages", {"body": "for bob", "sender": "ann", "receiver": "bob"})
    assert await take(node) == []
    assert await take(node, receiver="eve") == []
    assert await take(node, receiver="bob", sender="eve") == []
    assert await take(node, receiver="bob", sender="ann") == ["for bob"]


async def test_a_repeated_put_is_stored_once(node: Node) -> None:
    """With the same Idempotency-Key."""
    await node.post("/v1/queues", {"name": "q"})
    for expected in (1, 0):
        answer = await node.post("/v1/queues/q/messages", {"body": "x"}, Idempotency_Key="k")
        assert (answer.status, len(answer.json["ids"])) == (201, expected)
    assert await take(node, limit=10) == ["x"]


async def test_wrong_messages(node: Node) -> None:
    """They are refused, and nothing is put."""
    await node.post("/v1/queues", {"name": "q"})
    for wrong in (
        {"body": "x", "priority": 11},
        {"body": "x", "receiver": ""},
        {"body": "?", "encoding": "base64"},
    ):
        assert (await node.post("/v1/queues/q/messages", wrong)).status == 400
    options: object
    for options in ({"limit": 0}, {"wait": 61}, {"order": "size"}, {"receiver": " x"}):
        assert (await node.post("/v1/queues/q/take", options)).status == 400
    assert await take(node, limit=10) == []


async def test_a_taker_that_waits(node: Node) -> None:
    """It gets what comes; if it goes before, the message stays."""
    await node.post("/v1/queues", {"name": "q"})
    waiting = asyncio.ensure_future(take(node, wait=20))
    await node.post("/v1/queues/q/messages", {"body": "x"})
    assert await waiting == ["x"]
    peer = await node.connect()
    await peer.send("POST", "/v1/queues/q/take", {"wait": 50})
    room = node.broker.queues._room._waiters  # noqa: SLF001
    await until(lambda: any(room.values()))
    peer.close()
    await until(lambda: not any(room.values()))
    await node.post("/v1/queues/q/messages", {"body": "y"})
    assert await take(node) == ["y"]
