"""Malformed requests: each gets an answer in JSON, and each address one log line per minute."""

import logging
import time
from collections import Counter
from http import HTTPStatus

from nuncius.doors.http.errors import Word, problem
from nuncius.doors.http.queue_report.report import failure

log = logging.getLogger(__name__)

SECONDS = 60.0
# uvicorn's own lines for the same: without an address, and one for each request.
UVICORNS_LINES = frozenset(("Invalid HTTP request received.", "Unsupported upgrade request."))
logging.getLogger("uvicorn.error").addFilter(lambda record: record.msg not in UVICORNS_LINES)
MOST_ADDRESSES = 1000  # log lines per minute, at most


class MalformedRequests:
    """Log the first malformed request of an address in each minute, and count the others."""

    def __init__(self) -> None:
        self._since = 0.0
        self._counts: Counter[str] = Counter()

    def note(self, address: str, reason: str) -> None:
        now = time.monotonic()
        if now - self._since >= SECONDS:
            self._since = now
            unlogged = self._counts.total() - len(self._counts)
            if unlogged:
                log.warning("more malformed requests", extra={"requests": unlogged})
            self._counts.clear()
        if address in self._counts or len(self._counts) < MOST_ADDRESSES:
            self._counts[address] += 1
            if self._counts[address] == 1:
                log.warning("malformed request", extra={"peer": address, "reason": reason})


def answer(url: bytes, status: HTTPStatus, word: Word, message: str) -> bytes:
    """Return a complete answer, after which the connection ends. Its form is that of the API that the URL
    belongs to, as far as the URL has arrived."""
    content = failure(message) if url and not url.startswith(b"/v1") else problem(word, message)
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + content
