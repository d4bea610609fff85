"""Requests to a node over HTTP, for commands whose data only the HTTP door provides."""

import http.client
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer

from nuncius.cli.connection import STORE_AWAY
from nuncius.client import CannotConnect
from nuncius.store import environment

DEFAULT_HTTP = "http://127.0.0.1:5000"
ANSWER_SECONDS = 10.0

HttpUrl = Annotated[
    str,
    typer.Option("--http", envvar=environment.HTTP, help="Where the node's HTTP port is.", show_default=True),
]


class NoHttpAnswer(CannotConnect):
    """The node gave no answer over HTTP. The message says what to do."""


def get(url: str, path: str, timeout: float = ANSWER_SECONDS) -> Any:
    """Return the JSON document at a path."""
    status, content = exchange(url, "GET", path, timeout=timeout)
    if status == 503:
        raise NoHttpAnswer(STORE_AWAY.format(url))
    if status != 200:
        raise NoHttpAnswer(f"{url}{path} answers with status {status}")
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise NoHttpAnswer(f"{url} is no node of ours ({error})") from error


def exchange(
    url: str, method: str, path: str, body: bytes | None = None, *, timeout: float = ANSWER_SECONDS
) -> tuple[int, bytes]:
    """Send a request with a JSON body, or none. Return the status and the content of the answer."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise NoHttpAnswer(f"{url!r} is no address like {DEFAULT_HTTP}")
    connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=timeout)
    reached = False
    try:
        connection.connect()
        reached = True
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        if reached and isinstance(error, TimeoutError):
            raise NoHttpAnswer(STORE_AWAY.format(url)) from error
        raise NoHttpAnswer(f"no node answers at {url} ({error}); start one with: nuncius up") from error
    finally:
        connection.close()
