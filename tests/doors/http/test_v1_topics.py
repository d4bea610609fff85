"""Topics under /v1."""

import asyncio
import base64

from doors.http.peer import Node, running_node
from nuncius.broker.limits import Limits


async def test_topics(node: Node) -> None:
    """They are made, shown, grown and deleted."""
    answer = await node.post("/v1/topics", {"name": "a/b ü", "partitions": 2})
    assert answer.status == 201
    made = answer.json
    assert (made["name"], made["messages"], made["subscriptions"]) == ("a/b ü", 0, 0)
    assert [each["partition"] for each in made["partitions"]] == [1, 2]
    assert made["retention"] == {"mode": "forever", "seconds": None, "bytes": None}
    path = "/v1/topics/a%2Fb%20%C3%BC"
    assert (await node.get(path)).json == made
    assert (await node.get("/v1/topics")).json == {"topics": [made], "next": None}
    answer = await node.post("/v1/topics", {"name": "a/b ü"})
    assert (answer.status, answer.json["error"]) == (409, "conflict")
    assert len((await node.put(f"{path}/partitions", {"partitions": 3})).json["partitions"]) == 3
    answer = await node.put(f"{path}/partitions", {"partitions": 2})
    assert (answer.status, answer.json["error"]) == (400, "invalid")
    gone = await node.delete(path)
    assert (gone.status, {"content-length", "content-type"} & gone.headers.keys()) == (204, set())
    for answer in (await node.get(path), await node.delete(path), await node.post(f"{path}/purge")):
        assert (answer.status, answer.json["error"]) == (404, "not_found")


async def test_retention_and_purge(node: Node) -> None:
    """A topic's retention is set with it or later; a purge says how much it removed."""
    rule = {"mode": "time", "seconds": 60}
    made = (await node.post("/v1/topics", {"name": "t", "retention": rule})).json
    assert made["retention"] == {"mode": "time", "seconds": 60, "bytes": None}
    answer = await node.put("/v1/topics/t/retention", {"mode": "size", "bytes": 1000})
    assert answer.json["retention"]["mode"] == "size"
    for wrong in (
        {"mode": "time"},
        {"mode": "forever", "seconds": 1},
        {"mode": "x"},
        {"mode": "size", "bytes": 0},
    ):
        assert (await node.put("/v1/topics/t/retention", wrong)).status == 400
    assert (await node.put("/v1/topics/none/retention", {"mode": "forever"})).status == 404
    await node.post("/v1/topics/t/messages/batch", {"messages": [{"body": "x"}] * 3})
    assert (await node.post("/v1/topics/t/purge")).json == {"removed": 3}
    assert (await node.get("/v1/topics/t")).json["messages"] == 0


async def test_publish_and_read(node: Node) -> None:
    """Bodies are text or base64; keys and headers come back; so do times."""
    answer = await node.post(
        "/v1/topics/t/messages", {"body": "héllo", "key": "k", "headers": {"colour": "blue"}}
    )
    assert (answer.status, answer.json) == (201, {"stored": {"partition": 1, "offset": 0}})
    raw = base64.b64encode(b"\xff\x00").decode()
    await node.post("/v1/topics/t/messages?partition=1", {"body": raw, "encoding": "base64"})
    one, two = (await node.get("/v1/topics/t/partitions/1/messages")).json["messages"]
    assert (one["offset"], one["body"], one["encoding"]) == (0, "héllo", "utf-8")
    assert (one["key"], one["headers"]) == ("k", {"colour": "blue"})
    assert one["time"].endswith("Z")
    assert (two["body"], two["encoding"], two["key"]) == (raw, "base64", None)
    part = await node.get("/v1/topics/t/partitions/1/messages?offset=1&limit=1")
    assert part.json["messages"] == [two]
    assert (await node.get("/v1/topics/t/partitions/1/messages?offset=2")).json == {"messages": []}


async def test_wrong_messages(node: Node) -> None:
    """Each is refused with a sentence that says why, and nothing is stored."""
    await node.post("/v1/topics", {"name": "t"})
    path = "/v1/topics/t/messages"
    for body, said in (
        ({"body": 5}, "Expected `str`"),
        ({}, "missing required field `body`"),
        ({"body": "?", "encoding": "base64"}, "not base64"),
        ({"body": "x", "encoding": "latin-1"}, "Invalid enum value"),
        ({"body": "x", "colour": "blue"}, "unknown field `colour`"),
        ({"body": "x", "headers": {"a": 1}}, "Expected `str`"),
        (b"{", "truncated"),
        (b"", "the request has no body"),
    ):
        answer = await node.post(path, body)
        assert (answer.status, answer.json["error"]) == (400, "invalid")
        assert said in answer.json["message"]
    assert (await node.post(f"{path}?partition=7", {"body": "x"})).json["error"] == "refused"
    assert (await node.post(f"{path}?partition=x", {"body": "x"})).status == 400
    assert (await node.post(f"{path}/batch", {"messages": []})).json["message"] == "there is nothing to send"
    answer = await node.post(path, b"<x/>", Content_Type="text/xml")
    assert (answer.status, answer.json["error"]) == (415, "unsupported_media_type")
    answer = await node.call("POST", path, {"body": "x"}, {"Idempotency-Key": "ü"})
    assert answer.status == 400
    assert (await node.get("/v1/topics/t")).json["messages"] == 0


async def test_batches(node: Node) -> None:
    """A batch is published as a whole; keys keep to their partition while the number stays."""
    await node.post("/v1/topics", {"name": "t", "partitions": 4})
    messages = [{"body": str(n), "key": f"k{n % 5}"} for n in range(20)]
    stored = (await node.post("/v1/topics/t/messages/batch", {"messages": messages})).json["stored"]
    partitions = {(n % 5): place["partition"] for n, place in enumerate(stored)}
    assert all(place["partition"] == partitions[n % 5] for n, place in enumerate(stored))
    assert len(set(partitions.values())) > 1
    again = (await node.post("/v1/topics/t/messages/batch", {"messages": messages})).json["stored"]
    assert [place["partition"] for place in again] == [place["partition"] for place in stored]
    answer = await node.post("/v1/topics/t/messages/batch", {"messages": [{"body": "x"}], "partition": 3})
    assert answer.json["stored"][0]["partition"] == 3


async def test_a_repeated_publish_is_stored_once(node: Node) -> None:
    """With the same Idempotency-Key and topic: one message, a batch, or bytes."""
    for path, body in (
        ("messages", {"body": "x"}),
        ("messages/batch", {"messages": [{"body": "x"}] * 2}),
        ("messages/raw", b"x"),
    ):
        first = await node.post(f"/v1/topics/t/{path}", body, Idempotency_Key=path)
        second = await node.post(f"/v1/topics/t/{path}", body, Idempotency_Key=path)
        assert first.status == second.status == 201
        assert first.json["stored"] not in (None, [None, None])
        assert second.json["stored"] in (None, [None, None])
    assert (await node.get("/v1/topics/t")).json["messages"] == 4
    await node.post("/v1/topics/u/messages", {"body": "x"}, Idempotency_Key="messages")
    assert (await node.get("/v1/topics/u")).json["messages"] == 1


async def test_raw_messages(node: Node) -> None:
    """The bytes of a body are a message, and come back as they were, with their content type."""
    answer = await node.post("/v1/topics/t/messages/raw?key=k", b"\x89PNG", Content_Type="image/png")
    assert answer.status == 201
    path = "/v1/topics/t/partitions/1/messages"
    answer = await node.get(f"{path}/0/raw")
    assert (answer.status, answer.headers["content-type"], answer.content) == (200, "image/png", b"\x89PNG")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert (await node.get(path)).json["messages"][0]["key"] == "k"
    await node.post("/v1/topics/t/messages/raw", b"")
    answer = await node.get(f"{path}/1/raw")
    assert (answer.headers["content-type"], answer.content) == ("application/octet-stream", b"")
    await node.broker.topics.publish("t", [b"x"], headers=['{"content-type": "te\\nxt"}'])
    assert (await node.get(f"{path}/2/raw")).headers["content-type"] == "application/octet-stream"
    assert (await node.get(f"{path}/9/raw")).status == 404
    assert (await node.get("/v1/topics/t/partitions/9/messages")).status == 400
    assert (await node.get("/v1/topics/nope/partitions/1/messages")).status == 404


async def test_what_is_not_there(node: Node) -> None:
    """An unknown path or method under /v1 is told in the way of /v1, the description's own included."""
    for path in ("/v1", "/v1/", "/v1/nothing", "/v1/topics/", "/v1/topics//messages"):
        answer = await node.get(path)
        assert (answer.status, answer.json["error"]) == (404, "not_found")
    for path, allowed in (
        ("/v1/topics", "GET, HEAD, OPTIONS, POST"),
        ("/v1/openapi.json", "GET, HEAD, OPTIONS"),
    ):
        answer = await node.delete(path)
        assert (answer.status, answer.json["error"]) == (405, "method_not_allowed")
        assert answer.headers["allow"] == allowed


async def test_limits(dsn: str) -> None:
    """Too large a message, a request or a batch has the status that says so."""
    async with running_node(dsn, limits=Limits(max_body=100, max_batch=3, max_partitions=5)) as node:
        answer = await node.post("/v1/topics/t/messages", {"body": "x" * 101})
        assert (answer.status, answer.json["error"]) == (413, "too_large")
        assert (await node.post("/v1/topics/t/messages/raw", b"x" * 100)).status == 201
        answer = await node.post("/v1/topics/t/messages/raw", b"x" * 101)
        assert (answer.status, answer.json["error"]) == (413, "too_large")
        answer = await node.post("/v1/topics/t/messages", b" " * (node.door.desk.max_request + 1))
        assert answer.status == 413
        answer = await node.post("/v1/topics/t/messages/batch", {"messages": [{"body": "x"}] * 4})
        assert answer.json == {"error": "invalid", "message": "a batch has at most 3 messages"}
        assert (await node.post("/v1/topics", {"name": "u", "partitions": 6})).status == 400
        assert (await node.post("/v1/topics", {"name": "n" * 256})).status == 400


async def test_long_poll(node: Node) -> None:
    """A reader that waits gets a message when it comes, and nothing when its time is over."""
    await node.post("/v1/topics", {"name": "t"})
    waiting = asyncio.ensure_future(node.get("/v1/topics/t/partitions/1/messages?wait=20"))
    await node.post("/v1/topics/t/messages", {"body": "x"})
    assert (await waiting).json["messages"][0]["body"] == "x"
    answer = await node.get("/v1/topics/t/partitions/1/messages?offset=1&wait=0.01")
    assert answer.json == {"messages": []}


async def test_paths_and_methods(node: Node) -> None:
    """What does not exist is a 404, a method that does not fit a 405 that says which do."""
    for path in ("/v1/", "/v1/nothing", "/v1/topics/", "/v1/topics//messages", "/v1/topics/t/x/y/z"):
        answer = await node.get(path)
        assert (answer.status, answer.json["error"]) == (404, "not_found")
    answer = await node.call("PATCH", "/v1/topics")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
    answer = await node.get("/v1/topics/%ff")
    assert (answer.status, answer.json["error"]) == (400, "invalid")
    answer = await node.get("/v1/topics/t?" + "&".join(f"a{n}=1" for n in range(200)))
    assert answer.status == 404, "a query that nobody reads does no harm"
    answer = await node.get("/v1/queues/q/messages?" + "&".join(f"a{n}=1" for n in range(200)))
    assert answer.status == 400
