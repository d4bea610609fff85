"""Groups under /v1: two members share a subscription, one of them goes."""

import asyncio
from typing import Any

from doors.http.peer import Node

PATH = "/v1/topics/t/subscriptions/sue/members"


def place(message: dict[str, Any]) -> tuple[int, int]:
    return message["partition"], message["offset"]


async def test_two_members_and_one_goes(node: Node) -> None:
    """They share the partitions; what one leaves behind the other gets, what was confirmed nobody again."""
    await node.post("/v1/topics", {"name": "t", "partitions": 4})
    await node.post("/v1/topics/t/subscriptions", {"name": "sue"})
    one, two = [(await node.post(PATH, {"name": name})).json["member"] for name in ("ann", "bob")]
    for member in (one, two, one, two):
        await node.get(f"{PATH}/{member}/messages")
    listed = (await node.get(PATH)).json["members"]
    assert [(each["name"], len(each["partitions"])) for each in listed] == [("ann", 2), ("bob", 2)]

    messages = [{"body": str(n), "key": str(n)} for n in range(40)]
    await node.post("/v1/topics/t/messages/batch", {"messages": messages})
    portions = [(await node.get(f"{PATH}/{member}/messages?limit=100")).json for member in (one, two)]
    seen = [message["body"] for portion in portions for message in portion["messages"]]
    assert sorted(seen, key=int) == [str(n) for n in range(40)]

    first = portions[0]
    ends = {message["partition"]: message["offset"] + 1 for message in first["messages"]}
    positions = [{"partition": partition, "position": end} for partition, end in ends.items()]
    confirmation = {"generation": first["generation"], "positions": positions}
    assert (await node.post(f"{PATH}/{one}/confirm", confirmation)).status == 204
    assert (await node.post(f"{PATH}/{two}/heartbeat")).status == 204
    answer = await node.post(f"{PATH}/{two}/confirm", confirmation)
    assert (answer.status, answer.json["error"]) == (409, "conflict")

    waiting = asyncio.ensure_future(node.get(f"{PATH}/{one}/messages?limit=100&wait=20"))
    assert (await node.delete(f"{PATH}/{two}")).status == 204
    inherited = (await waiting).json
    assert inherited["partitions"] == [1, 2, 3, 4]
    assert sorted(inherited["messages"], key=place) == sorted(portions[1]["messages"], key=place)
    for answer in (
        await node.get(f"{PATH}/{two}/messages"),
        await node.post(f"{PATH}/{two}/heartbeat"),
        await node.post(f"{PATH}/{two}/confirm", confirmation),
        await node.delete(f"{PATH}/{two}"),
        await node.get(f"/v1/topics/t/subscriptions/bob/members/{one}/messages"),
    ):
        assert (answer.status, answer.json["error"]) == (404, "not_found")


async def test_wrong_input(node: Node) -> None:
    """A group needs a subscription, a member a name and a session that makes sense."""
    await node.post("/v1/topics", {"name": "t"})
    assert (await node.post(PATH, {"name": "ann"})).status == 404
    assert (await node.get(PATH)).status == 404
    await node.post("/v1/topics/t/subscriptions", {"name": "sue"})
    for wrong in ({}, {"name": ""}, {"name": "x", "session": 0}, {"name": "x", "session": 1e9}):
        assert (await node.post(PATH, wrong)).status == 400
    assert (await node.get(f"{PATH}/x/messages")).status == 400
