"""Requests that the balancer passes on, and its own answers."""

import re

import msgspec

from nuncius.cluster.balancer.managers import Manager, is_modern, kind_of
from nuncius.cluster.reverse_proxy.requests import encode

BAD, UNAVAILABLE = b"400 Bad Request", b"503 Service Unavailable"
TIMEOUT = b"408 Request Timeout"
TOO_LARGE = b"413 Content Too Large"
FAILING = 500  # from this status on, the manager failed and not the request
REFUSING = 400  # from this status on, the request failed
HEAD_TOO_LARGE = b"431 Request Header Fields Too Large"
_AUTHORS_PATHS = (b"/broker", b"/partition")
_AUTHORS_WORD = re.compile(rb'[?&]topic_name=|"topic_name"\s*:')


class BadRequest(Exception):
    """A request that is not passed on: why, and the status of the answer."""

    def __init__(self, reason: str, status: bytes = BAD) -> None:
        super().__init__(reason)
        self.status = status


class ProxiedRequest:
    """A client's request, ready to be sent."""

    __slots__ = ("alive", "data", "is_head", "kind", "modern", "path", "repeatable", "tried")

    def __init__(
        self,
        method: bytes,
        url: bytes,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
        *,
        alive: bool,
        has_key: bool,
    ) -> None:
        self.path = b"/" + url.partition(b"?")[0].lstrip(b"/")
        self.kind = kind_of(method, self.path)
        self.modern = is_modern(self.path)
        self.is_head = method == b"HEAD"
        self.alive = alive
        reads = method in (b"GET", b"HEAD", b"OPTIONS") and self.path != b"/consumer/consume"
        self.repeatable = reads or has_key
        self.tried: list[Manager] = []
        self.data = encode(method, url, headers, body)

    @property
    def is_authors(self) -> bool:
        """Return True if the request is spelled as in the report, whose authors' balancer reports every
        failure in the name of the manager."""
        return self.path.startswith(_AUTHORS_PATHS) or _AUTHORS_WORD.search(self.data) is not None

    def takes_answer(self, status: int, sentences: bool | None) -> bool:
        """Return whether a manager's answer is passed on. The authors' balancer reports failures itself."""
        if status < REFUSING or self.modern:
            return True
        return status < FAILING and not (self.is_authors if sentences is None else sentences)

    def failure(self, reason: str, word: str) -> bytes:
        """Build the answer to a request that no manager has answered."""
        message = f"{self.kind} Failed: {reason}"
        return problem(word, message) if self.modern else failure(message)


def message_in(content: bytes, status: int) -> str:
    """Return a manager's message, from an answer that is not passed on."""
    try:
        return str(msgspec.json.decode(content)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return f"answered with status {status}"


def failure(message: str, status: bytes = BAD) -> bytes:
    """Build a failure in the form of the report's API."""
    return _json(status, {"status": "failure", "message": message})


def problem(word: str, message: str) -> bytes:
    """Build a failure in the form of /v1."""
    return _json(UNAVAILABLE, {"error": word, "message": message})


def _json(status: bytes, fields: dict[str, str]) -> bytes:
    body = msgspec.json.encode(fields)
    head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body
