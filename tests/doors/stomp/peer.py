"""A node with the STOMP port open, and a peer that speaks to it frame by frame or byte by byte."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from nuncius.broker import Broker
from nuncius.broker.limits import Limits
from nuncius.client import AsyncClient
from nuncius.doors.native.door import TelestoDoor
from nuncius.doors.stomp.door import StompDoor
from nuncius.doors.stomp.frames.codec import Frame, FrameDecoder, FrameLimits, encode
from nuncius.doors.stomp.frames.versions import Version
from racing import until

SECONDS = 60.0
RETRY = 0.05  # seconds between attempts, in tests


@dataclass(frozen=True, slots=True)
class Node:
    broker: Broker
    door: StompDoor
    port: int
    native_port: int

    def client(self) -> AsyncClient:
        """A client of the same node that speaks the native protocol."""
        return AsyncClient(f"nuncius://127.0.0.1:{self.native_port}", timeout=20)


@asynccontextmanager
async def running_node(
    dsn: str,
    *,
    limits: Limits | None = None,
    heart_beat_ms: int = 1000,
    frames: FrameLimits | None = None,
    patience: float = 20,
) -> AsyncIterator[Node]:
    async with Broker(dsn, limits=limits or Limits(retry_delay=RETRY), patience=patience) as broker:
        door = StompDoor(broker, heart_beat_ms=heart_beat_ms, limits=frames)
        native = TelestoDoor(broker)
        try:
            port = await door.open("127.0.0.1", 0)
            yield Node(broker, door, port, await native.open("127.0.0.1", 0))
        finally:
            await door.close()
            await native.close()


class Peer:
    """One connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: Version = Version.V12
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.version = version
        self._decoder = FrameDecoder(version, FrameLimits(max_body=64 << 20))
        self._arrived: deque[Frame] = deque()
        self._receipts = 0

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def send(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        """Underscores in names stand for hyphens."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.write(encode(command, named, body, self.version))

    def end(self) -> None:
        """Says no more, and still listens."""
        self._writer.write_eof()

    async def read(self, count: int) -> bytes:
        """Raw bytes, for those who do not use `frame`."""
        async with asyncio.timeout(SECONDS):
            return await self._reader.readexactly(count)

    async def read_through(self, end: bytes) -> bytes:
        """Read raw bytes up to the next `end`, and that."""
        said = b""
        while not said.endswith(end):
            try:
                async with asyncio.timeout(SECONDS):
                    return said + await self._reader.readuntil(end)
            except asyncio.LimitOverrunError as more:
                said += await self.read(more.consumed)
        return said

    async def frame(self) -> Frame:
        """The next frame; heart-beats are passed over. EOFError at the end of the connection."""
        async with asyncio.timeout(SECONDS):
            while not self._arrived:
                data = await self._reader.read(1 << 16)
                if not data:
                    raise EOFError
                self._arrived.extend(self._decoder.receive(data))
        return self._arrived.popleft()

    async def expect(self, command: str) -> Frame:
        frame = await self.frame()
        assert frame.command == command, frame
        return frame

    async def messages(self, count: int) -> list[Frame]:
        return [await self.expect("MESSAGE") for _ in range(count)]

    async def bodies(self, count: int) -> list[bytes]:
        return [message.body for message in await self.messages(count)]

    async def error(self) -> Frame:
        """The next frame has to be an ERROR, and the end of the connection after it."""
        error = await self.expect("ERROR")
        await self.closed()
        return error

    async def closed(self) -> None:
        with suppress(ConnectionResetError):
            assert await self._next_or_none() is None

    async def _next_or_none(self) -> Frame | None:
        try:
            return await self.frame()
        except EOFError:
            return None

    async def ask(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        """Sends a frame with a receipt, and waits for that. Messages that come before it are kept."""
        self._receipts += 1
        receipt = f"r{self._receipts}"
        self.send(command, body, **headers, receipt=receipt)
        before = []
        while (frame := await self.frame()).command == "MESSAGE":
            before.append(frame)
        self._arrived.extendleft(reversed(before))
        assert frame == Frame("RECEIPT", {"receipt-id": receipt}), frame

    async def refused(self, command: str, body: bytes = b"", /, **headers: str) -> str:
        """Sends a frame that has to be answered with an ERROR; answers with its message."""
        self.send(command, body, **headers, receipt="refused")
        error = await self.error()
        assert error.headers["receipt-id"] == "refused"
        return error.headers["message"]

    async def subscribe(self, destination: str, **headers: str) -> None:
        await self.ask("SUBSCRIBE", destination=destination, **{"id": "0", **headers})

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


async def until_left(node: Node, connections: int) -> None:
    """Returns when only so many connections are left, and the others have put everything back in its
    place."""
    background = node.door._background  # noqa: SLF001
    await until(lambda: node.door.connections == connections and not background._tasks)  # noqa: SLF001


@asynccontextmanager
async def stranger(node: Node, version: Version = Version.V12) -> AsyncIterator[Peer]:
    """A connection that has not said anything yet."""
    peer = Peer(*await asyncio.open_connection("127.0.0.1", node.port), version)
    try:
        yield peer
    finally:
        await peer.close()


@asynccontextmanager
async def connected(node: Node, version: Version = Version.V12, **headers: str) -> AsyncIterator[Peer]:
    async with stranger(node, version) as peer:
        peer.send("CONNECT", accept_version=version.value, host="localhost", **headers)
        frame = await peer.expect("CONNECTED")
        assert frame.headers["version"] == version
        yield peer
