"""Pages of other sites do not reach a node through a visitor's browser."""

import pytest
import websockets
from websockets.asyncio.client import connect

from doors.http.peer import Node
from nuncius.broker import Broker
from nuncius.doors.http.door import HttpDoor
from nuncius.doors.http.web.origins import Origins, is_origin
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


@pytest.mark.parametrize(
    ("admitted", "local", "host"),
    [
        (True, "127.0.0.1", "127.0.0.1:5000"),
        (True, "::1", "[::1]:5000"),
        (True, "127.0.0.1", "localhost"),
        (True, "127.0.0.1", "nuncius:5000"),
        (True, "127.0.0.1", "app.localhost:5000"),
        (True, "127.0.0.1", "broker.internal"),
        (True, "127.0.0.1", "Friend.example:5000"),
        (True, "127.0.0.1", "own.example.org"),
        (True, "192.0.2.1", "anything.example"),
        (False, "127.0.0.1", "evil.example:5000"),
        (False, "::1", "evil.example"),
        (False, "127.0.0.1", "127.0.0.1.evil.example"),
        (False, "127.0.0.1", "localhost.evil.example"),
        (False, "127.0.0.1", "[::1"),
    ],
)
@pytest.mark.parametrize("origin", ["", "own"])
def test_a_name_that_leads_here_for_a_moment(admitted: bool, local: str, host: str, origin: str) -> None:
    """At an address that only this machine reaches, who uses a name that anybody may own is a page of
    its owner. Names of the node, of this machine and of sites that were named are welcome."""
    origins = Origins(["https://friend.example"])
    origins.goes_by("own.example.org")
    asked = scope(f"http://{host}" if origin else "", host)
    assert origins.admit({**asked, "server": (local, 5000)}) is admitted


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


async def test_a_page_whose_name_leads_here(node: Node) -> None:
    """It changes nothing and reads nothing, with and without a word on whose page it is."""
    for headers in ({}, {"origin": "http://evil.example"}, {"x_forwarded_host": "evil.example"}):
        answer = await node.post("/v1/topics/news/messages", {"body": "x"}, host="evil.example", **headers)
        assert (answer.status, "--allow-origin" in answer.json["message"]) == (403, True)
    assert (await node.get("/topics", host="evil.example")).status == 403
    assert (await node.get("/topics", host="localhost")).json["topics"] == []


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
