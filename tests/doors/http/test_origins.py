"""Pages of other sites do not reach a node through a visitor's browser."""

import pytest
import websockets
from websockets.asyncio.client import connect

from doors.http.peer import Node
from nuncius.broker import Broker
from nuncius.doors.http.door import HttpDoor
from nuncius.doors.http.origins import Origins, is_origin
from nuncius.doors.stomp.door import StompDoor


def scope(origin: str, host: str = "127.0.0.1:5000", forwarded: str = "") -> dict[str, object]:
    headers = {"host": host, "x-forwarded-host": forwarded, "origin": origin}
    return {"headers": [(name.encode(), value.encode()) for name, value in headers.items() if value]}


@pytest.mark.parametrize(
    ("admitted", "request_"),
    [
        (True, scope("")),
        (True, scope("http://localhost:3000")),
        (True, scope("http://127.0.0.1:8080")),
        (True, scope("http://[::1]:8080")),
        (True, scope("https://app.localhost")),
        (True, scope("http://broker.lan:5000", host="broker.lan:5000")),
        (True, scope("https://mq.lan", forwarded="mq.lan")),
        (True, scope("https://Friend.example")),
        (False, scope("https://evil.example")),
        (False, scope("http://friend.example")),
        (False, scope("https://friend.example:8443")),
        (False, scope("https://localhost.evil.example")),
        (False, scope("https://evil.example/localhost")),
        (False, scope("http://broker.lan:5001", host="broker.lan:5000")),
        (False, scope("null")),
        (False, scope("http://[::1")),
        (False, scope("\xff\x00")),
    ],
)
def test_who_is_admitted(admitted: bool, request_: dict[str, object]) -> None:
    """Programs, pages of this machine, of the node itself, and of sites that were named; nobody else."""
    assert Origins(["https://friend.example"]).admit(request_) is admitted


def test_how_sites_are_named() -> None:
    """A scheme and a host, perhaps a port; nothing else can match."""
    assert all(map(is_origin, ["https://a.example", "http://a.example:8080", "http://[::1]:80"]))
    assert not any(map(is_origin, ["a.example", "*", "https://", "https://a.example/", "ftp://a.example"]))


@pytest.mark.parametrize("path", ["/v1/topics/news/messages", "/producer/register", "/topics", "/nowhere"])
async def test_a_foreign_page_sends_a_request(node: Node, path: str) -> None:
    """It is refused before anything happens, in the API and in the report's endpoints alike."""
    answer = await node.post(path, {"topic": "news", "name": "news"}, origin="https://evil.example")
    assert answer.status == 403
    assert "another site" in answer.json["message"]
    assert (await node.get("/topics")).json["topics"] == []


async def test_a_foreign_page_opens_a_websocket(broker: Broker) -> None:
    """It gets 403 instead of a connection; a page of a site that was named gets a connection."""
    stomp = StompDoor(broker)
    door = HttpDoor(broker, (stomp.over_websocket(),), allowed_origins=["https://friend.example"])
    url = f"ws://127.0.0.1:{await door.open('127.0.0.1', 0)}/stomp"
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with connect(url, origin=websockets.Origin("https://evil.example")):
            pass
    assert refused.value.response.status_code == 403
    async with connect(url, origin=websockets.Origin("https://friend.example")) as socket:
        await socket.send("CONNECT\naccept-version:1.2\nhost:test\n\n\0")
        assert str(await socket.recv()).startswith("CONNECTED\n")
    await stomp.close()
    await door.close()
