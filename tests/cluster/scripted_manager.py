"""A manager that does what a test wants: answers, hangs, hangs up, or talks nonsense."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from nuncius.testing import free_port

Script = Callable[[bytes], bytes | None]
HANG = b""


def answer(body: bytes, status: int = 200, headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\n%bcontent-length: %d\r\n\r\n%b" % (status, headers, len(body), body)


class ScriptedManager:
    """`script` gets a request and says what to answer; None hangs up, HANG never answers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = free_port()
        self.requests: list[bytes] = []
        self.connections = 0
        self.lost = asyncio.Event()
        self.script: Script = lambda _: answer(self.name.encode())
        self._server: asyncio.Server | None = None
        self.writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 26)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in self.writers:
                writer.transport.abort()
            await asyncio.sleep(0)
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.add(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                request = head + await reader.readexactly(int(length or 0))
                self.requests.append(request)
                said = self.script(request)
                if said is None:
                    break
                writer.write(said)
        except (asyncio.IncompleteReadError, OSError):
            self.lost.set()
        finally:
            self.writers.discard(writer)
            writer.transport.abort()


@asynccontextmanager
async def managers(*names: str) -> AsyncIterator[list[ScriptedManager]]:
    made = [ScriptedManager(name) for name in names]
    for each in made:
        await each.open()
    yield made
    for each in made:
        await each.close()
