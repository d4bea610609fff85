"""Our own generator of HTTP load: keep-alive connections, each with one prepared request at a time.

An answer is only checked for success and completeness, so that the generator does not limit the figures.
"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

HEAD_END = b"\r\n\r\n"

Ask = Callable[[], bytes | None]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load generator: successful answers, duration, and the generator's own CPU time."""

    answered: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.answered / self.seconds

    @property
    def share(self) -> float:
        """Return how busy the generator was: at 1 it uses a whole core and limits the figures."""
        return self.cpu_seconds / self.seconds


class _Connection(asyncio.Protocol):
    """A connection that sends its next request when the last one is answered."""

    def __init__(self, ask: Ask, finished: asyncio.Future[int]) -> None:
        self._ask = ask
        self._finished = finished
        self._answered = 0
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not of that class
        self._next()

    def _next(self) -> None:
        request = self._ask()
        if request is not None:
            self._transport.write(request)
            return
        self._transport.close()
        if not self._finished.done():
            self._finished.set_result(self._answered)

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        head = data.find(HEAD_END)
        if head < 0 or len(data) < head + 4 + _length(data, head):
            self._buffer = data
            return
        self._buffer = b""
        if not data.startswith(b"HTTP/1.1 20"):
            self._fail(data[:300])
            return
        self._answered += 1
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(b"the connection was closed")

    def _fail(self, said: bytes) -> None:
        if not self._finished.done():
            self._finished.set_exception(RuntimeError(f"an answer {said!r} that should not be"))
            self._transport.close()


def _length(data: bytes, head: int) -> int:
    at = data.find(b"content-length:", 0, head)
    return int(data[at + 15 : data.find(b"\r", at)]) if at >= 0 else 0


async def run(port: int, asks: list[Ask]) -> LoadResult:
    """Open one connection for each source of requests, and run until all sources have ended."""
    loop = asyncio.get_running_loop()
    start, cpu = time.perf_counter(), time.thread_time()
    answered: list[asyncio.Future[int]] = []
    for ask in asks:
        finished: asyncio.Future[int] = loop.create_future()
        answered.append(finished)
        await loop.create_connection(lambda a=ask, f=finished: _Connection(a, f), "127.0.0.1", port)  # type: ignore[misc]
    total = sum(await asyncio.gather(*answered))
    return LoadResult(total, time.perf_counter() - start, time.thread_time() - cpu)


def request(method: str, path: str, body: object = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def call(port: int, method: str, path: str, body: object = None) -> Any:
    """Send one request. Return its answer, decoded from JSON."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request(method, path, body))
    head = await reader.readuntil(HEAD_END)
    content = await reader.readexactly(_length(head, len(head)))
    writer.close()
    if not head.startswith(b"HTTP/1.1 20"):
        raise RuntimeError(f"{method} {path}: {head[:12]!r} {content!r}")
    return json.loads(content) if content else None


def until(end: float, what: bytes) -> Ask:
    """Repeat a request until `end`."""
    return lambda: what if time.perf_counter() < end else None


def times(count: int, what: bytes) -> Ask:
    left = iter(range(count))
    return lambda: what if next(left, None) is not None else None
