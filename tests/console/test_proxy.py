"""The console behind Debian's nginx, with the settings that the manual gives."""

import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import nuncius.testing
from console.conftest import Visitor
from console.test_actions import logged
from nuncius.testing import Broker, free_port

ROOT = Path(__file__).parents[2]
NGINX = ROOT / ".nginx" / "nginx"
PAGE = (ROOT / "docs/console.md").read_text("utf-8")
TRUSTED, NAMED = re.findall(r"^```nginx\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SITE = "mq.example.org"
AROUND = """
daemon off; master_process off; pid nginx.pid; error_log stderr;
events {{}}
http {{
    access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    {snippet}
}}
"""

pytestmark = pytest.mark.skipif(not NGINX.exists(), reason="no nginx: .ci/nginx fetches one")


@pytest.fixture
def port() -> int:
    return free_port()


@contextmanager
def node(*options: str) -> Iterator[tuple[Broker, int]]:
    """A node with a console, and its HTTP port."""
    http = free_port()
    with nuncius.testing.broker(f"--http-port={http}", *options) as started:
        yield started, http


@contextmanager
def nginx(directory: Path, snippet: str, port: int, http: int) -> Iterator[None]:
    """Run nginx with this part of its settings, on other ports and with a user of its own."""
    (directory / "users").write_text("ann:{PLAIN}secret\n")
    changed = snippet.replace("listen 8080", f"listen 127.0.0.1:{port}")
    changed = changed.replace("127.0.0.1:5000", f"127.0.0.1:{http}")
    changed = changed.replace("/etc/nginx/users", str(directory / "users"))
    (directory / "nginx.conf").write_text(AROUND.format(snippet=changed))
    process = subprocess.Popen(
        [NGINX, "-p", directory, "-c", directory / "nginx.conf"], stderr=subprocess.PIPE, text=True
    )
    try:
        while process.poll() is None and not listens(port):
            pass
        yield
    finally:
        process.terminate()
        said = process.communicate()[1]
    assert "emerg" not in said, said


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@contextmanager
def visiting(browser: Browser, port: int, *, user: str = "") -> Iterator[Visitor]:
    """A visitor who reaches the console through the proxy, by the name of the site."""
    credentials = {"username": user, "password": "secret"} if user else None
    context = browser.new_context(http_credentials=credentials)  # type: ignore[arg-type]
    visitor = Visitor(context.new_page(), f"http://{SITE}:{port}/console/")
    yield visitor
    context.close()


def make_queue(visitor: Visitor) -> None:
    """Opens a page that is live, and changes something."""
    visitor.open("queues")
    visitor.press("New queue")
    visitor.fill("Name", "by proxy")
    visitor.agree("Make it")
    visitor.hears("Made the queue 'by proxy'")


def test_a_trusted_proxy(browser: Browser, tmp_path: Path, port: int) -> None:
    """Pages are live behind a proxy that says what the browser asked for, and the log names the user whom the
    proxy has let in."""
    with (
        node("--trusted-proxy=127.0.0.1") as (started, http),
        nginx(tmp_path, TRUSTED, port, http),
        visiting(browser, port, user="ann") as visitor,
    ):
        make_queue(visitor)
        assert 'who="ann (127.0.0.1)"' in logged(started, "create queue")[0]


@pytest.mark.parametrize("snippet", [NAMED, re.sub("proxy_set_header Host .*", "", NAMED)])
def test_a_site_that_is_named(browser: Browser, tmp_path: Path, port: int, snippet: str) -> None:
    """Pages are live behind a proxy with the browser's Host header, or with a plain proxy_pass, when the site
    is named; the log names no user, because that proxy is not trusted."""
    with (
        node(f"--allow-origin=http://{SITE}:{port}") as (started, http),
        nginx(tmp_path, snippet, port, http),
        visiting(browser, port) as visitor,
    ):
        make_queue(visitor)
        assert "who=127.0.0.1 " in logged(started, "create queue")[0]


def test_a_stranger(browser: Browser, tmp_path: Path, port: int) -> None:
    """A name that may belong to anyone is refused, and the answer says which setting names it."""
    with (
        node() as (_, http),
        nginx(tmp_path, NAMED, port, http),
        visiting(browser, port) as visitor,
    ):
        visitor.page.goto(visitor.base)
        expect(visitor.page.locator("body")).to_contain_text("--allow-origin")
