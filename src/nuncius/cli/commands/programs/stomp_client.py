"""`nuncius stomp-client`: the test client of the STOMP broker's report.

One connection subscribes to `stocks` and `news`, another of the same name sends to both. Every message must
arrive, in order within each topic. The client speaks the report's slim dialect, so it works with the authors'
broker, too.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Annotated, Any

import typer

from nuncius.doors.stomp import slim_codec
from nuncius.node.logs import escape

TOPICS = ("news", "stocks")  # for even and odd message numbers
REFUSED = "not a valid destination"
MAX_FRAME = 16 << 20


class TrialFailed(Exception):
    """The server violated the protocol. The message says how."""


def register(app: typer.Typer) -> None:
    app.command("stomp-client")(stomp_client)


def stomp_client(
    host: Annotated[str, typer.Argument(help="Where the broker is.")] = "127.0.0.1",
    port: Annotated[int, typer.Argument(min=1, max=65535, help="Its STOMP port.")] = 55664,
    name: Annotated[str, typer.Argument(help="The name to log in with.")] = "test",
    count: Annotated[int, typer.Argument(min=0, help="How many messages to send.")] = 10,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds to wait for something to come before giving up.")
    ] = 10.0,
) -> None:
    """Send messages to two topics and receive them all: the test client of the report. Exits with 0 if every
    message came, each topic in order."""
    from nuncius.cli.errors import FAILED, NO_CONNECTION, explain

    try:
        verdict = asyncio.run(Trial(name, count, timeout).run(host, port))
    except (TrialFailed, OSError) as error:
        text = str(error) if isinstance(error, TrialFailed) else f"cannot connect: {explain(error)}"
        sys.stderr.write(f"nuncius: {escape(text)}\n")
        raise typer.Exit(FAILED if isinstance(error, TrialFailed) else NO_CONNECTION) from None
    typer.echo(verdict)


class Trial:
    def __init__(self, name: str, count: int, timeout: float) -> None:
        self._name = name
        self._timeout = timeout
        self._count = count
        self._left = {topic: list(range(count))[n::2][::-1] for n, topic in enumerate(TOPICS)}
        self._others = 0

    async def run(self, host: str, port: int) -> str:
        """Run the test and return its result in words."""
        begin = time.monotonic()
        async with self._connected(host, port) as subscriber:
            for topic in reversed(TOPICS):
                subscriber.write(slim_codec.subscribe(topic))
            # SUBSCRIBE has no answer. Frames are handled in order: the error of a failing SEND confirms it.
            subscriber.write(slim_codec.send(REFUSED, b"?"))
            await self._until_error(subscriber)
            async with self._connected(host, port) as sender:
                await _both(self._send(sender), self._receive_all(subscriber))
        seconds = time.monotonic() - begin
        others = f", and {self._others} of others" if self._others else ""
        return f"all {self._count} messages came, each topic in order, in {seconds:.2f} s{others}"

    @contextlib.asynccontextmanager
    async def _connected(self, host: str, port: int) -> AsyncIterator["SlimConnection"]:
        reader, writer = await asyncio.open_connection(host, port, limit=MAX_FRAME)
        try:
            connection = SlimConnection(reader, writer, self._timeout)
            connection.write(slim_codec.connect(self._name))
            answer = await connection.frame(lambda: "an answer to CONNECT")
            if answer + b"\0" != slim_codec.CONNECTED:
                raise TrialFailed(f"CONNECT was answered with {answer[:100]!r}")
            yield connection
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _until_error(self, subscriber: "SlimConnection") -> None:
        while not (frame := await subscriber.frame(lambda: "an answer to a SEND that must fail")).startswith(
            b"ERROR\n"
        ):
            self._receive(frame)

    async def _send(self, sender: "SlimConnection") -> None:
        for n in range(self._count):
            sender.write(slim_codec.send(TOPICS[n % 2], b"price: 22.%d" % n))
            await sender.drain()
        sender.write(slim_codec.DISCONNECT)
        answer = await sender.frame(lambda: "an answer to DISCONNECT")
        if answer + b"\0" != slim_codec.RECEIPT:
            raise TrialFailed(f"DISCONNECT was answered with {answer[:100]!r}")

    async def _receive_all(self, subscriber: "SlimConnection") -> None:
        while any(self._left.values()):
            self._receive(await subscriber.frame(self._missing))

    def _receive(self, frame: bytes) -> None:
        head, _, rest = frame.partition(b"\n\n")
        for topic in TOPICS:
            if head + b"\n\n" == slim_codec.message_head(topic):
                expected = self._left[topic]
                if expected and rest == b"price: 22.%d\n\n" % expected[-1]:
                    expected.pop()
                else:
                    self._others += 1
                return
        raise TrialFailed(f"the server sent {frame[:100]!r}")

    def _missing(self) -> str:
        firsts = [f"'price: 22.{left[-1]}' of {topic}" for topic, left in self._left.items() if left]
        return f"{' and '.join(firsts)} ({sum(map(len, self._left.values()))} of {self._count} are missing)"


class SlimConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float) -> None:
        self._reader = reader
        self._writer = writer
        self._timeout = timeout

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    async def frame(self, what: Callable[[], str]) -> bytes:
        """Receive the next frame, without its NUL. `what` describes the expected frame for errors."""
        try:
            async with asyncio.timeout(self._timeout):
                return (await self._reader.readuntil(b"\0"))[:-1].lstrip(b"\n")
        except TimeoutError:
            raise TrialFailed(f"nothing came within {self._timeout:g} s; waiting for {what()}") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise TrialFailed(f"the server closed the connection; waiting for {what()}") from None
        except asyncio.LimitOverrunError:
            raise TrialFailed("the server sent something that does not end") from None


async def _both(*work: Coroutine[Any, Any, None]) -> None:
    """Run both. If one fails, cancel the other and raise that error."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
