"""Subscriptions under /v1: places in a topic, reading from them, moving them, and streams of events."""

import asyncio
from datetime import UTC, datetime

import pytest

from doors.http.peer import Node, running_node
from nuncius.broker.limits import Limits
from racing import until

PATH = "/v1/topics/t/subscriptions"


async def publish(node: Node, *bodies: str) -> None:
    await node.post("/v1/topics/t/messages/batch", {"messages": [{"body": body} for body in bodies]})


async def bodies(node: Node, query: str = "") -> list[str]:
    return [each["body"] for each in (await node.get(f"{PATH}/sue/messages{query}")).json["messages"]]


async def test_subscriptions(node: Node) -> None:
    """They begin at the end or at the beginning, are listed with their lag, and end."""
    await publish(node, "a", "b")
    for name, start, lag in (("late", "latest", 0), ("early", "earliest", 2)):
        answer = await node.post(PATH, {"name": name, "start": start, "holds_retention": True})
        assert answer.status == 201
        assert answer.json["subscription"]["lag"] == lag
        assert answer.json["subscription"]["holds_retention"] is True
        assert answer.json["positions"] == [{"partition": 1, "position": 2 - lag}]
        assert (await node.get(f"{PATH}/{name}")).json == answer.json
    listed = (await node.get(PATH)).json["subscriptions"]
    assert [(each["name"], each["lag"]) for each in listed] == [("early", 2), ("late", 0)]
    assert (await node.delete(f"{PATH}/late")).status == 204
    for answer in (await node.get(f"{PATH}/late"), await node.delete(f"{PATH}/late")):
        assert (answer.status, answer.json["error"]) == (404, "not_found")
    assert (await node.get("/v1/topics/none/subscriptions")).status == 404
    assert (await node.post(PATH, {"name": "x", "start": "middle"})).status == 400


async def test_names_of_jobs(node: Node) -> None:
    """The name of a job's subscription is refused with 400."""
    answer = await node.post(PATH, {"name": "nuncius:archive"})
    assert (answer.status, "reserved for jobs" in answer.json["message"]) == (400, True)
    assert (await node.get(f"{PATH}/nuncius:archive/messages")).status == 400


async def test_read_and_confirm(node: Node) -> None:
    """Reading does not move a subscription; confirming does, and only forward."""
    await node.post("/v1/topics", {"name": "t", "partitions": 2})
    await node.post(PATH, {"name": "sue"})
    await publish(node, "a", "b")
    await publish(node, "c")
    assert sorted(await bodies(node)) == sorted(await bodies(node)) == ["a", "b", "c"]
    assert len(await bodies(node, "?limit=2")) == 2
    (first,) = [
        p for p in (1, 2) if (await node.broker.topics.find(["t"]))[0].partitions[p - 1].next_offset == 2
    ]
    answer = await node.post(f"{PATH}/sue/confirm", {"positions": [{"partition": first, "position": 1}]})
    assert answer.status == 204
    assert sorted(await bodies(node)) == ["b", "c"]
    await node.post(f"{PATH}/sue/confirm", {"positions": [{"partition": first, "position": 0}]})
    assert sorted(await bodies(node)) == ["b", "c"]
    for wrong in (9, 1):
        answer = await node.post(f"{PATH}/sue/confirm", {"positions": [{"partition": wrong, "position": 99}]})
        assert answer.status == 400
    assert (await node.post(f"{PATH}/sue/confirm", {"positions": []})).status == 400
    assert (
        await node.post(f"{PATH}/bob/confirm", {"positions": [{"partition": 1, "position": 1}]})
    ).status == 404


async def test_long_poll(node: Node) -> None:
    """A reader that waits gets what comes; one for whom nothing comes gets nothing."""
    await node.post(PATH, {"name": "sue"})
    assert await bodies(node, "?wait=0.01") == []
    waiting = asyncio.ensure_future(bodies(node, "?wait=20"))
    await publish(node, "a", "b")
    assert await waiting == ["a", "b"]


async def test_a_short_wait(node: Node) -> None:
    """What is there already is found, however short the wait for what comes."""
    await node.post(PATH, {"name": "sue"})
    await publish(node, "0")
    assert await bodies(node, "?wait=0.000001") == ["0"]


@pytest.mark.parametrize("member", [False, True])
async def test_an_answer_has_an_end(dsn: str, member: bool) -> None:
    """However many messages are asked for, large ones come a few at a time, also to a member of a group."""
    async with running_node(dsn, limits=Limits(max_body=100)) as node:
        await node.post("/v1/topics", {"name": "t", "partitions": 3})
        await node.post(PATH, {"name": "sue"})
        for partition in (1, 2, 3):
            messages = [{"body": str(n) * 80} for n in (1, 2)]
            await node.post("/v1/topics/t/messages/batch", {"messages": messages, "partition": partition})
        path, more = f"{PATH}/sue", {}
        if member:
            path += f"/members/{(await node.post(path + '/members', {'name': 'ann'})).json['member']}"
        seen = set()
        for _ in range(3):
            portion = (await node.get(f"{path}/messages?limit=1000")).json
            (partition,) = {each["partition"] for each in portion["messages"]}
            assert [each["offset"] for each in portion["messages"]] == [0, 1]
            if member:
                more = {"generation": portion["generation"]}
            positions = [{"partition": partition, "position": 2}]
            assert (await node.post(f"{path}/confirm", {"positions": positions, **more})).status == 204
            seen.add(partition)
        assert seen == {1, 2, 3}


async def test_seek(node: Node) -> None:
    """A subscription goes to the beginning, the end, a time or positions, forward and back."""
    await publish(node, "a", "b")
    await node.post(PATH, {"name": "sue"})
    middle = datetime.now(UTC)
    await publish(node, "c")

    async def seek(**to: object) -> int:
        answer = await node.post(f"{PATH}/sue/seek", to)
        assert answer.status == 200, answer
        position: int = answer.json["positions"][0]["position"]
        return position

    assert await seek(to="earliest") == 0
    assert await bodies(node) == ["a", "b", "c"]
    assert await seek(to="latest") == 3
    assert await bodies(node) == []
    assert await seek(time=middle.isoformat()) == 2
    assert await bodies(node) == ["c"]
    assert await seek(time=middle.replace(tzinfo=None).isoformat()) == 2, "a time without a zone is UTC"
    assert await seek(time="2000-01-01T00:00:00Z") == 0
    assert await seek(time="2100-01-01T00:00:00Z") == 3
    assert await seek(positions=[{"partition": 1, "position": 1}]) == 1
    assert await bodies(node) == ["b", "c"]
    for wrong in (
        {},
        {"to": "earliest", "time": "2000-01-01T00:00:00Z"},
        {"to": "middle"},
        {"positions": [{"partition": 1, "position": 4}]},
        {"positions": [{"partition": 2, "position": 0}]},
    ):
        assert (await node.post(f"{PATH}/sue/seek", wrong)).status == 400
    assert await bodies(node) == ["b", "c"]
    assert (await node.post(f"{PATH}/bob/seek", {"to": "latest"})).status == 404


async def test_events(node: Node) -> None:
    """A stream brings what is there and what comes, and goes on behind the last event that a client names."""
    await node.post("/v1/topics", {"name": "t", "partitions": 3})
    await node.post(PATH, {"name": "sue"})
    await publish(node, "a", "b")
    await publish(node, "c", "d")
    peer = await node.connect()
    await peer.send("GET", f"{PATH}/sue/events")
    status, headers = await peer.head()
    assert (status, headers["content-type"], headers["cache-control"]) == (
        200,
        "text/event-stream",
        "no-store",
    )
    events = [await peer.event() for _ in range(4)]
    assert sorted(event["data"].split('"body":"')[1][0] for event in events) == ["a", "b", "c", "d"]
    await publish(node, "e")
    events.append(await peer.event())
    assert '"body":"e"' in events[-1]["data"]
    peer.close()

    for seen in range(1, 6):  # resumed twice, each time somewhere else
        rest: list[str] = []
        last = events[seen - 1]["id"]
        while len(rest) < 5 - seen:
            again = await node.connect()
            await again.send("GET", f"{PATH}/sue/events", headers={"Last-Event-ID": last})
            await again.head()
            event = await again.event()
            last = event["id"]
            rest.append(event["data"])
            again.close()
        assert sorted(rest) == sorted(event["data"] for event in events[seen:])


async def test_wrong_events(node: Node) -> None:
    """An id that is not of this stream is refused, and so is a subscription that does not exist."""
    await node.post(PATH, {"name": "sue"})
    for wrong in ("x", "1", "2:0", "1:x", "1:" + "9" * 30, "9" * 20 + ":1"):
        answer = await node.get(f"{PATH}/sue/events", Last_Event_ID=wrong)
        assert (answer.status, answer.json["error"]) == (400, "invalid")
    assert (await node.get(f"{PATH}/bob/events")).status == 404


async def test_events_end_with_the_door(node: Node) -> None:
    """When a node stops, its streams end cleanly, and readers that wait are told."""
    await node.post(PATH, {"name": "sue"})
    peer = await node.connect()
    await peer.send("GET", f"{PATH}/sue/events")
    await peer.head()
    waiting = asyncio.ensure_future(node.get(f"{PATH}/sue/messages?wait=50"))
    topic_id = (await node.broker.topics.existing("t")).topic_id
    await until(lambda: len(node.broker.signals._watching.get(topic_id, ())) == 2)  # noqa: SLF001
    async with asyncio.timeout(40):
        await node.door.close()
        with pytest.raises(EOFError):
            await peer.event()
        answer = await waiting
    peer.close()
    assert (answer.status, answer.json["error"]) == (503, "unavailable")


async def test_events_end_with_the_subscription(node: Node) -> None:
    """The stream ends, and who comes back is told why."""
    await node.post(PATH, {"name": "sue"})
    peer = await node.connect()
    await peer.send("GET", f"{PATH}/sue/events")
    await peer.head()
    await node.delete(f"{PATH}/sue")
    with pytest.raises(EOFError):
        await peer.event()
    await peer.reader.readline()
    await peer.send("GET", f"{PATH}/sue/events")
    assert (await peer.answer()).status == 404
    peer.close()


async def test_a_client_that_goes_is_not_waited_for(node: Node) -> None:
    """Nothing of a reader stays behind when its connection ends."""
    await node.post(PATH, {"name": "sue"})
    topic_id = (await node.broker.topics.existing("t")).topic_id
    waiting = node.broker.signals._watching  # noqa: SLF001
    for path in ("events", "messages?wait=50"):
        peer = await node.connect()
        await peer.send("GET", f"{PATH}/sue/{path}")
        await until(lambda: waiting.get(topic_id))
        peer.close()
        await until(lambda: not waiting.get(topic_id))
