"""A real browser shows pages of other sites: one that was named, and one that was not."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from playwright.sync_api import Browser, Page


class Blank(BaseHTTPRequestHandler):
    """Every page of the sites is blank; tests run their scripts in it."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>site</title>")

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - the parent's name
        pass


@pytest.fixture(scope="module")
def sites() -> Iterator[int]:
    """The port of a server that is any site under .localhost, which browsers look for on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Blank)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def settings(sites: int) -> list[str]:
    return ["--allow-origin", f"http://friend.localhost:{sites}"]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture(scope="module")
def door(ports: dict[str, int]) -> str:
    return f"http://127.0.0.1:{ports['http']}"


SEND = """async door => {
  const answer = await fetch(door + "/v1/topics/news/messages", {
    method: "POST",
    headers: {"Content-Type": "application/json", "Idempotency-Key": "k"},
    body: JSON.stringify({body: "x"}),
  });
  const wrong = await fetch(door + "/v1/health", {method: "POST"});
  return [answer.status, (await answer.json()).stored.offset, wrong.status, wrong.headers.get("Allow")];
}"""
LISTEN = """door => new Promise((resolve, reject) => {
  const source = new EventSource(door + "/v1/topics/news/subscriptions/sue/events");
  source.onmessage = event => { source.close(); resolve(JSON.parse(event.data).body); };
  source.onerror = reject;
})"""
LOAD = """(url) => new Promise(resolve => {
  const image = new Image();
  image.onload = image.onerror = () => resolve();
  image.src = url;
})"""
FRAME = """(url) => new Promise(resolve => {
  const frame = document.createElement("iframe");
  frame.onload = () => resolve(frame.contentDocument === null);
  frame.src = url;
  document.body.append(frame);
})"""


def test_a_named_site(page: Page, sites: int, door: str) -> None:
    """Its pages send requests with a preflight, read answers and their headers, and streams of events."""
    httpx.post(f"{door}/v1/topics/news/subscriptions", json={"name": "sue", "start": "earliest"})
    page.goto(f"http://friend.localhost:{sites}/")
    assert page.evaluate(SEND, door) == [201, 0, 405, "GET, HEAD, OPTIONS"]
    assert page.evaluate(LISTEN, door) == "x"


def test_another_site(page: Page, sites: int, door: str) -> None:
    """Its pages read nothing, and neither an image nor a frame nor a link of theirs consumes a message."""
    httpx.post(f"{door}/producer/register", params={"topic": "A"})
    httpx.post(f"{door}/producer/produce", params={"topic": "A", "producer_id": 1, "message": "precious"})
    consumer = httpx.post(f"{door}/consumer/register", params={"topic": "A"}).json()["consumer_id"]
    consume = f"{door}/consumer/consume?topic=A&consumer_id={consumer}"
    page.goto(f"http://other.localhost:{sites}/")
    assert page.evaluate("door => fetch(door + '/v1/topics').catch(() => 'refused')", door) == "refused"
    page.evaluate(LOAD, consume)
    page.evaluate(FRAME, consume)
    page.evaluate(FRAME, f"{door}/docs")
    assert not any(frame.title().startswith("Nuncius") for frame in page.frames)
    with page.expect_navigation():
        page.evaluate("url => { location.href = url }", consume)
    assert "another site" in page.content()
    assert httpx.get(consume).json()["message"] == "precious"
    page.goto(f"http://other.localhost:{sites}/")
    with page.expect_navigation():
        page.evaluate("url => { location.href = url }", f"{door}/docs")
    assert page.title() == "Nuncius: HTTP API"
