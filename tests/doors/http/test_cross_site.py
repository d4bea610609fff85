"""Requests that a browser sends for a page of another site: images, links, and those of named sites."""

from collections.abc import AsyncIterator

import pytest

from doors.http.peer import Node, running_node
from doors.http.test_report import consumer, produce, producer

FRIEND = "https://friend.example"
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
IMAGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
FRAME = {**LINK, "Sec-Fetch-Dest": "iframe"}
FORM = {**LINK, "Content-Type": "text/plain"}


@pytest.fixture
async def friendly(dsn: str, no_safety_net: None) -> AsyncIterator[Node]:  # noqa: ARG001  (before it)
    """A node that knows a site by name."""
    async with running_node(dsn, allowed_origins=[FRIEND]) as running:
        yield running


@pytest.mark.parametrize("headers", [IMAGE, FRAME, LINK, {**IMAGE, "Sec-Fetch-Site": "same-site"}])
async def test_a_page_cannot_consume(node: Node, headers: dict[str, str]) -> None:
    """An image, a frame or a link of another page consumes no message; the consumer gets it."""
    one, two = await producer(node), await consumer(node)
    await produce(node, one, "precious")
    path = f"/consumer/consume?topic=A&consumer_id={two}"
    answer = await node.call("GET", path, headers=headers)
    assert (answer.status, answer.json["status"]) == (403, "failure")
    assert "another site" in answer.json["message"]
    assert (await node.call("GET", path, headers={"Sec-Fetch-Site": "none"})).json["message"] == "precious"


@pytest.mark.parametrize("headers", [IMAGE, FRAME, FORM])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "//consumer/consume?topic=A&consumer_id=1"),
        ("POST", "/topics?name=B"),
        ("POST", "/producer/register?topic=B"),
        ("DELETE", "/broker/remove?broker_id=1"),
        ("POST", "/v1/topics/A/purge"),
        ("POST", "/v1/topics/B/messages/raw"),
        ("DELETE", "/v1/topics/A"),
        ("GET", "/v1/topics/A/subscriptions/sue/members/1/messages"),
    ],
)
async def test_a_page_cannot_change_anything(
    node: Node, method: str, path: str, headers: dict[str, str]
) -> None:
    """A request that changes something is refused, without Origin, in the form of its own API."""
    await node.post("/topics", {"name": "A"})
    answer = await node.call(method, path, b"", headers)
    assert answer.status == 403
    assert "another site" in answer.json["message"]
    assert ("error" in answer.json) == path.startswith("/v1")
    assert (await node.get("/topics")).json["topics"] == ["A"]


@pytest.mark.parametrize("path", ["/", "/docs", "/livez", "/topics", "/v1/topics", "/v1/openapi.json"])
async def test_a_link_leads_here(node: Node, path: str) -> None:
    """A visitor may follow a link from anywhere to what only shows; a page may not fetch or frame it."""
    assert (await node.call("GET", path, headers=LINK)).status in (200, 307)
    for headers in (IMAGE, FRAME):
        assert (await node.call("GET", path, headers=headers)).status == 403


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_own_pages(node: Node, site: str) -> None:
    """The node's own pages and a typed address may do everything."""
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    assert (await node.call("POST", "/v1/topics", {"name": "A"}, headers)).status == 201


async def test_pages_cannot_be_framed(node: Node) -> None:
    """The page of the API has the console's guards."""
    answer = await node.get("/docs")
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    for rule in ("frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "default-src 'none'"):
        assert rule in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "method"),
    [("/v1/topics/t/messages", "POST"), ("/v1/topics/t", "DELETE"), ("/producer/produce", "POST")],
)
async def test_a_named_site_asks_first(friendly: Node, path: str, method: str) -> None:
    """Its browser's question is answered with 204: which methods and headers, and for how long."""
    question = {"Origin": FRIEND, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    question["Access-Control-Request-Method"] = method
    question["Access-Control-Request-Headers"] = "content-type,idempotency-key"
    answer = await friendly.call("OPTIONS", path, headers=question)
    assert (answer.status, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == FRIEND
    assert method in answer.headers["access-control-allow-methods"].split(", ")
    assert answer.headers["access-control-allow-headers"] == "*, Authorization"
    assert int(answer.headers["access-control-max-age"]) > 0
    assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("path", ["/v1/topics", "/topics", "/v1/nothing", "/nothing", "/v1/queues/q"])
async def test_a_named_site_reads_answers(friendly: Node, path: str) -> None:
    """Its pages may read every answer, errors included, with the headers that a program needs."""
    answer = await friendly.call("GET", path, headers={"Origin": FRIEND, "Sec-Fetch-Site": "cross-site"})
    assert answer.status in (200, 404)
    assert answer.headers["access-control-allow-origin"] == FRIEND
    assert "Allow" in answer.headers["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in answer.headers


async def test_answers_for_others(friendly: Node) -> None:
    """Other sites, pages of this machine and programs get no permission; caches learn what it depends on."""
    for headers, status in (
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://localhost:3000"}, 200),
        ({}, 200),
    ):
        answer = await friendly.call("GET", "/v1/topics", headers=headers)
        assert (answer.status, answer.headers["vary"]) == (status, "Origin")
        assert "access-control-allow-origin" not in answer.headers
    question = {"Origin": "https://evil.example", "Access-Control-Request-Method": "DELETE"}
    assert (await friendly.call("OPTIONS", "/v1/topics/t", headers=question)).status == 403


async def test_a_named_site_listens(friendly: Node) -> None:
    """Its pages may read streams of events, too."""
    await friendly.post("/v1/topics/t/subscriptions", {"name": "sue"})
    peer = await friendly.connect()
    await peer.send("GET", "/v1/topics/t/subscriptions/sue/events", headers={"Origin": FRIEND})
    status, headers = await peer.head()
    assert (status, headers["access-control-allow-origin"]) == (200, FRIEND)
    peer.close()


async def test_without_named_sites(node: Node) -> None:
    """A node that knows no sites says nothing about them."""
    answer = await node.call("GET", "/v1/topics", headers={"Origin": "http://localhost"})
    assert not {"vary", "access-control-allow-origin"} & answer.headers.keys()
