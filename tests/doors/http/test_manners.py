"""Manners of HTTP: methods, heads that are not right, and text that is none."""

import logging

import pytest

from doors.http.peer import Node
from nuncius.doors.http.connection.http import MAX_HEAD, HttpConnection
from nuncius.doors.http.connection.malformed import MalformedRequests
from nuncius.doors.http.v1.routes import OPERATIONS
from nuncius.doors.http.web.origins import consumes

TOPIC = "/v1/topics/news"


@pytest.fixture
async def news(node: Node) -> Node:
    """A node with a topic that has a message, a subscription and a queue."""
    await node.post("/v1/topics", {"name": "news"})
    await node.post(f"{TOPIC}/subscriptions", {"name": "sue", "start": "earliest"})
    await node.post(f"{TOPIC}/messages", {"body": "x" * 10})
    await node.post("/v1/queues", {"name": "jobs"})
    return node


READABLE = [
    "/",
    "/docs",
    "/livez",
    "/metrics",
    "/topics",
    "/openapi.json",
    "/v1/openapi.json",
    "/v1/topics",
    TOPIC,
    f"{TOPIC}/partitions/1/messages",
    f"{TOPIC}/partitions/1/messages/0/raw",
    f"{TOPIC}/subscriptions/sue/messages",
    f"{TOPIC}/subscriptions/sue/events",
    "/v1/queues/jobs/messages",
    "/v1/health",
]


async def head(node: Node, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Send a HEAD. Return the status, the headers and the rest, up to the end of the connection."""
    peer = await node.connect()
    await peer.send("HEAD", path, headers={"Connection": "close", **headers})
    status, said = await peer.head()
    rest = await peer.reader.read()
    peer.close()
    return status, said, rest


@pytest.mark.parametrize("path", READABLE)
async def test_head_is_get_without_a_body(news: Node, path: str) -> None:
    """HEAD is answered as GET is, with the same status and type, and ends at once, a stream's too."""
    status, said, rest = await head(news, path)
    assert (status, rest) == (307 if path == "/" else 200, b"")
    if not path.endswith("/events"):
        answer = await news.get(path)
        assert (answer.status, answer.headers["content-type"]) == (status, said["content-type"])


async def test_head_consumes_nothing(news: Node) -> None:
    """Where a GET takes something there is no HEAD."""
    number = (await news.post("/consumer/register", {"topic": "news"})).json["consumer_id"]
    path = f"/consumer/consume?topic=news&consumer_id={number}"
    assert (await head(news, path))[0] == 400
    assert (await news.get(path)).json["message"] == "x" * 10
    member = (await news.post(f"{TOPIC}/subscriptions/sue/members", {"name": "m"})).json["member"]
    assert (await head(news, f"{TOPIC}/subscriptions/sue/members/{member}/messages"))[0] == 405


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/topics", "GET, HEAD, OPTIONS, POST"),
        ("/consumer/consume", "GET, OPTIONS, POST"),
        ("/producer/produce", "OPTIONS, POST"),
        ("/docs", "GET, HEAD, OPTIONS"),
        ("*", "OPTIONS"),
        ("/v1/openapi.json", "GET, HEAD, OPTIONS"),
        (TOPIC, "DELETE, GET, HEAD, OPTIONS"),
        (f"{TOPIC}/subscriptions/sue/members/1/messages", "GET, OPTIONS"),
    ],
)
async def test_options(news: Node, path: str, allowed: str) -> None:
    """OPTIONS says which methods a path takes, without carrying out any; so does the refusal of another."""
    answer = await news.call("OPTIONS", path)
    assert (answer.status, answer.content, answer.headers["allow"]) == (204, b"", allowed)
    answer = await news.call("PATCH", path)
    assert answer.status in (400, 405)
    assert answer.headers["allow"] == allowed


async def test_options_of_nothing(node: Node) -> None:
    """A path that does not exist has no methods."""
    assert (await node.call("OPTIONS", "/v1/nothing")).json["error"] == "not_found"
    assert (await node.call("OPTIONS", "/nothing")).json["status"] == "failure"


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_an_unknown_path(node: Node, method: str) -> None:
    """Outside /v1 it is a 404 in the form of the report's API."""
    answer = await node.call(method, "/nothing")
    assert (answer.status, answer.json["status"]) == (404, "failure")
    assert "/docs" in answer.json["message"]


def test_what_a_get_changes() -> None:
    """Every operation that consumes by GET is known as such to the guard against other sites' pages."""
    for each in OPERATIONS:
        if each.method == "GET":
            assert consumes(each.path.encode()) == each.changes, each.path


@pytest.mark.parametrize("path", ["/topics", "/v1/topics", "/docs"])
@pytest.mark.parametrize("hosts", [b"", b"Host: a\r\nHost: a\r\n", b"host: a\r\nX: y\r\nHOST: b\r\n"])
async def test_a_request_without_one_host(node: Node, path: str, hosts: bytes) -> None:
    """In HTTP/1.1 a request names its host exactly once."""
    peer = await node.connect()
    peer.writer.write(b"GET %b HTTP/1.1\r\n%b\r\n" % (path.encode(), hosts))
    answer = await peer.answer()
    assert (answer.status, "Host" in answer.json["message"]) == (400, True)
    peer.close()


async def test_an_old_client_has_no_host(node: Node) -> None:
    """In HTTP/1.0 a request need not name its host, but not twice either."""
    for hosts, status in ((b"", 200), (b"Host: a\r\n", 200), (b"Host: a\r\nHost: b\r\n", 400)):
        peer = await node.connect()
        peer.writer.write(b"GET /topics HTTP/1.0\r\n%b\r\n" % hosts)
        assert (await peer.answer()).status == status
        peer.close()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/topics/t/messages", b'{"body":"\xff"}'),
        ("POST", "/v1/topics/t/messages", b'{"body":"x","key":"\xc3("}'),
        ("POST", "/v1/topics/t/messages", b'{"body":' + b"[" * 50_000),
        ("POST", "/v1/topics", b'{"name":"\xed\xa0\x80"}'),
        ("POST", "/v1/topics", b'{"name":"a\\u0000"}'),
        ("POST", "/v1/topics", b'{"name":"\\ud800"}'),
        ("POST", "/v1/topics/t%00/messages", b'{"body":"x"}'),
        ("POST", "/v1/topics/t%ff/messages", b'{"body":"x"}'),
        ("GET", "/v1/topics/%00", b""),
        ("GET", "/v1/topics/%ff", b""),
        ("GET", "/v1/topics/%ed%a0%80/subscriptions", b""),
        ("GET", "/v1/topics?after=%00", b""),
        ("GET", "/v1/queues?after=%ff", b""),
        ("GET", "/v1/queues/%00/messages", b""),
        ("POST", "/v1/queues/%00/take", b"{}"),
        ("DELETE", "/v1/connections/%ff", b""),
        ("POST", "/topics", b'{"name":"a\\u0000"}'),
        ("POST", "/producer/register", b'{"topic":"\\u0000"}'),
        ("POST", "/consumer/register?topic=%00", b""),
        ("POST", "/consumer/register?topic=%ff", b""),
        ("GET", "/size?topic=%00&consumer_id=1", b""),
        ("GET", "/consumer/consume?topic=%00&consumer_id=%00", b""),
        ("POST", "/partition", b'{"topic":"\\u0000"}'),
    ],
)
async def test_text_that_is_none(
    node: Node, caplog: pytest.LogCaptureFixture, method: str, path: str, body: bytes
) -> None:
    """Bytes that are no UTF-8, and characters that no name has, are a 400 with a sentence of ours."""
    answer = await node.call(method, path, body)
    message = answer.json["message"]
    assert answer.status == 400, message
    for foreign in ("codec", "0x", "byte", "byte sequence", "utf-8'", "asyncpg", "character with"):
        assert foreign not in message
    assert not caplog.records


async def test_integers_with_a_fraction_of_nothing(node: Node) -> None:
    """5.0 and 5e0 are integers in JSON, and so they are in bodies, queries and paths; 5.5 is none."""
    assert (await node.post("/v1/topics", b'{"name":"t 1.0","partitions":2.0}')).status == 201
    assert (await node.get("/v1/topics/t%201.0")).json["name"] == "t 1.0"
    body = b'{"messages":[{"body":"1.0"},{"body":"\\" 2.0","headers":{"a":"3.0"}}],"partition":2e0}'
    assert (await node.post("/v1/topics/t%201.0/messages/batch", body)).status == 201
    found = (await node.get("/v1/topics/t%201.0/partitions/2.0/messages?limit=1e1&offset=0.0")).json
    assert [each["body"] for each in found["messages"]] == ["1.0", '" 2.0']
    assert found["messages"][1]["headers"] == {"a": "3.0"}
    for wrong in (b"5.5", b"1e400", b"1e30", b'"5"', b"true", b"-1.0"):
        answer = await node.post("/v1/topics", b'{"name":"u","partitions":%b}' % wrong)
        assert (answer.status, answer.json["error"]) == (400, "invalid")


async def test_malformed_requests(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A request that is no HTTP gets a 400 in JSON; the log has one line for an address, with the address."""
    monkeypatch.setattr(HttpConnection, "_malformed", MalformedRequests())
    for sent in (b"\x16\x03\x01\x02\x00\x01\x00", b"nonsense\r\n\r\n", b"GET /v1/topics HTTP/9.9.9\r\n\r\n"):
        peer = await node.connect()
        peer.writer.write(sent)
        answer = await peer.answer()
        assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
        assert answer.json["message"] == "This is not a valid HTTP request."
        assert await peer.reader.read() == b""
        peer.close()
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [(line.getMessage(), vars(line)["peer"]) for line in lines] == [("malformed request", "127.0.0.1")]


async def test_a_request_before_a_malformed_one(news: Node) -> None:
    """A whole request is carried out and answered, also if rubbish came with it; then the connection ends."""
    number = (await news.post("/consumer/register", {"topic": "news"})).json["consumer_id"]
    path = f"/consumer/consume?topic=news&consumer_id={number}"
    for rubbish in (b"rubbish\r\n\r\n", b"GET / HTTP/1.1\r\nx: " + b"x" * (MAX_HEAD + 30)):
        await news.post(f"{TOPIC}/messages", {"body": "x" * 10})
        peer = await news.connect()
        peer.writer.write(b"GET %b HTTP/1.1\r\nHost: t\r\n\r\n%b" % (path.encode(), rubbish))
        answer = await peer.answer()
        assert (answer.status, answer.json["message"]) == (200, "x" * 10)
        assert await peer.reader.read() == b""
        peer.close()


def test_lines_about_malformed_requests(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An address has a line a minute. Others of its requests are counted in the next minute. Many addresses
    cannot fill the log."""
    now = 1000.0
    monkeypatch.setattr("nuncius.doors.http.connection.malformed.time.monotonic", lambda: now)
    requests = MalformedRequests()
    for address in ("a", "b", "a", "a"):
        requests.note(address, "x")
    assert [vars(each)["peer"] for each in caplog.records] == ["a", "b"]
    now += 61
    requests.note("a", "x")
    assert vars(caplog.records[2])["requests"] == 2
    assert vars(caplog.records[3])["peer"] == "a"
    caplog.clear()
    for number in range(5000):
        requests.note(f"2001:db8::{number:x}", "x")
    assert len(caplog.records) < 1001
