"""Leases under /v1: for a time, whichever node is asked."""

from collections.abc import AsyncIterator

import pytest

from broker.acknowledging import QUICK, lease_one, off_duty, returned
from doors.http.peer import Answer, Node, running_node
from nuncius.store.driver import Connection

Json = dict[str, object]


@pytest.fixture
async def node(dsn: str, no_safety_net: None) -> AsyncIterator[Node]:  # noqa: ARG001  (before it)
    """A node that tries again soon, with a queue."""
    async with running_node(dsn, limits=QUICK) as running:
        await running.post("/v1/queues", {"name": "q"})
        yield running


@pytest.fixture
async def second(dsn: str, node: Node) -> AsyncIterator[Node]:  # noqa: ARG001  (beside it)
    async with running_node(dsn, limits=QUICK) as running:
        yield running


async def lease(node: Node, **options: object) -> list[dict[str, object]]:
    answer = await node.post("/v1/queues/q/lease", options)
    assert answer.status == 200, answer
    messages: list[dict[str, object]] = answer.json["messages"]
    return messages


async def say(node: Node, verb: str, *leases: object, **more: object) -> Answer:
    return await node.post(f"/v1/queues/q/{verb}", {"leases": leases, **more})


async def put(node: Node, *bodies: str) -> None:
    messages = [{"body": body} for body in bodies]
    assert (await node.post("/v1/queues/q/messages/batch", {"messages": messages})).status == 201


async def test_any_node(node: Node, second: Node) -> None:
    """Whichever node is asked, a lease is extended, released and settled, and no two hold the same one."""
    await put(node, "a", "b", "c")
    (one,) = await lease(node)
    two, three = await lease(second, limit=5)
    assert [each["body"] for each in (one, two, three)] == ["a", "b", "c"]
    assert (await say(second, "extend", one["lease"], seconds=100)).status == 204
    assert (await say(node, "settle", two["lease"], three["lease"])).status == 204
    assert (await say(second, "release", one["lease"], reason="too hot")).status == 204
    (again,) = await lease(node, wait=20)
    assert (again["body"], again["attempts"], again["origin"]) == ("a", 1, one["origin"])
    (failure,) = await node.broker.failures()
    assert failure.reason == "too hot"


@pytest.mark.parametrize(
    ("verb", "more"), [("settle", {}), ("release", {"reason": "no"}), ("extend", {"seconds": 5})]
)
async def test_too_late(node: Node, second: Node, verb: str, more: Json) -> None:
    """After the time is over every node says so, names the lease, and changes nothing; the message comes
    again, counted."""
    await off_duty(node.broker, second.broker)
    await put(node, "late", "in time")
    (late,) = await lease(node, seconds=0.001)
    (kept,) = await lease(node, seconds=3600)
    for at in (node, second):
        answer = await say(at, verb, late["lease"], kept["lease"], **more)
        assert (answer.status, answer.json["error"]) == (409, "conflict")
        assert f"lease {late['lease']} is not held" in answer.json["message"]
    await returned(second.broker, 2)
    (again,) = await lease(node, wait=60, seconds=3600)
    assert (again["body"], again["attempts"]) == ("late", 1)
    assert (await say(node, verb, late["lease"], **more)).status == 409
    assert (await say(node, "settle", again["lease"], kept["lease"])).status == 204


async def test_more_time(node: Node, connection: Connection) -> None:
    """A lease ends so many seconds after it was last extended."""
    await put(node, "x")
    (one,) = await lease(node)
    left = "select extract(epoch from due_at - now())::float from nuncius.leases"
    assert 20 < await connection.fetchval(left) <= 30
    assert (await say(node, "extend", one["lease"], seconds=3600)).status == 204
    assert 3500 < await connection.fetchval(left) <= 3600
    assert (await say(node, "extend", one["lease"])).status == 204
    assert 20 < await connection.fetchval(left) <= 30


async def test_of_the_right_queue(node: Node) -> None:
    """A lease belongs to its queue, and one of a consumer of another kind is not touched."""
    await node.post("/v1/queues", {"name": "other"})
    await put(node, "x", "y")
    (one,) = await lease(node)
    theirs = await lease_one(node.broker, (await node.broker.queues.find("q")).queue_id)
    for queue, number in (("other", one["lease"]), ("q", theirs.lease_id), ("q", 2**63 - 1)):
        for verb in ("settle", "release", "extend"):
            answer = await node.post(f"/v1/queues/{queue}/{verb}", {"leases": [number]})
            assert answer.status == 409, answer
    for verb in ("settle", "release", "extend"):
        answer = await node.post(f"/v1/queues/nothing/{verb}", {"leases": [1]})
        assert (answer.status, answer.json["error"]) == (404, "not_found")
    assert (await node.post("/v1/queues/nothing/lease", {})).status == 404
    assert (await say(node, "settle", one["lease"])).status == 204
    await node.broker.leases.settle([theirs.lease_id])


async def test_wrong_requests(node: Node) -> None:
    """They are refused, and nothing is taken."""
    await put(node, "x")
    wrong: object
    for wrong in (
        {"limit": 0},
        {"wait": 61},
        {"seconds": 0},
        {"seconds": -1},
        {"seconds": 3601},
        {"receiver": ""},
        {"order": "age"},
    ):
        assert (await node.post("/v1/queues/q/lease", wrong)).status == 400, wrong
    for verb in ("settle", "release", "extend"):
        for wrong in ({}, {"leases": []}, {"leases": [0]}, {"leases": ["a"]}, {"leases": [1], "more": 1}):
            assert (await node.post(f"/v1/queues/q/{verb}", wrong)).status == 400, wrong
    assert (await say(node, "extend", 1, seconds=3601)).status == 400
    assert len(await lease(node)) == 1


async def test_addressed_messages(node: Node) -> None:
    """A receiver sees what is for anybody and what is for it."""
    await node.post("/v1/queues/q/messages", {"body": "for bob", "receiver": "bob"})
    assert await lease(node) == []
    assert await lease(node, receiver="eve") == []
    (one,) = await lease(node, receiver="bob")
    assert one["body"] == "for bob"
