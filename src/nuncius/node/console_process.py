"""Starts the console when somebody first looks at it, and ends it with its node.

The keeper listens at a port in the console's place. The first connection makes it start the console, which
inherits the socket and finds the connection waiting there. So nobody waits for a console that nobody looks
at, several workers share one, and one that has died or gone to sleep is started again by the next look.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Sequence

import msgspec

from nuncius.doors.listening import listen
from nuncius.node import logs
from nuncius.node import program as itself

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
END_SECONDS = 10.0
REFUSE_SECONDS = 2.0


class Orders(msgspec.Struct, frozen=True):
    """What the keeper sends to a console, on its stdin: a password in a store's address is in no list of
    processes."""

    dsn: str
    socket: int
    read_only: bool = False
    log_level: str = "warning"
    log_format: str = "text"


class Report(msgspec.Struct, frozen=True):
    """What a console answers when it runs, or does not."""

    error: str = ""


class Keeper:
    def __init__(self, dsn: str, *, read_only: bool = False, command: Sequence[str] | None = None) -> None:
        self._dsn = dsn
        self._read_only = read_only
        self._command = command or console_command()
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._listening: socket.socket | None = None

    def open(self) -> int:
        """The port where the console will be."""
        self._loop = asyncio.get_running_loop()
        (self._listening,) = listen(LOOPBACK, 0)
        self._watch()
        port: int = self._listening.getsockname()[1]
        return port

    async def close(self) -> None:
        if self._listening is None:
            return
        self._loop.remove_reader(self._listening)
        if self._keeping is not None:
            self._keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeping
        if self._process is not None:
            await _end(self._process)
        self._listening.close()

    def _watch(self) -> None:
        assert self._listening is not None
        self._loop.add_reader(self._listening, self._looked_at)

    def _looked_at(self) -> None:
        assert self._listening is not None
        self._loop.remove_reader(self._listening)
        self._keeping = asyncio.ensure_future(self._keep())

    async def _keep(self) -> None:
        """One life of a console."""
        assert self._listening is not None
        try:
            process = self._process = await self._start()
        except OSError as error:
            await self._refuse(str(error))
        else:
            assert process.stdout is not None
            line = await process.stdout.readline()
            report = msgspec.json.decode(line, type=Report) if line else Report("it died while it started")
            if report.error:
                await self._refuse(report.error)
            code = await process.wait()
            if not report.error and code != 0:
                log.error("the console died; the next look starts it again", extra={"code": code})
            self._process = None
        self._watch()

    async def _start(self) -> asyncio.subprocess.Process:
        assert self._listening is not None
        log.info("starting the console")
        number = self._listening.fileno()
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(number,),
            start_new_session=True,  # Ctrl-C on a terminal is for the node alone
        )
        assert process.stdin is not None
        level, style = _logging()
        orders = Orders(self._dsn, number, self._read_only, level, style)
        process.stdin.write(msgspec.json.encode(orders) + b"\n")
        return process

    async def _refuse(self, error: str) -> None:
        """Whoever waits for the console learns why there is none."""
        assert self._listening is not None
        log.error("the console does not start", extra={"error": error})
        text = f"the console does not start: {error}\n".encode()
        head = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n"
        answer = head + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(text) + text
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # nobody else waits
                return
            connection.setblocking(False)
            with connection, contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(REFUSE_SECONDS):
                    await self._loop.sock_recv(connection, 1 << 16)  # else closing would reset what we answer
                    await self._loop.sock_sendall(connection, answer)


def console_command() -> list[str]:
    return itself.command("console", "--on-leash")


def _logging() -> tuple[str, str]:
    """How this process logs, for one that belongs to it."""
    root = logging.getLogger()
    return logging.getLevelName(root.level).lower(), "json" if logs.as_json() else "text"


async def _end(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        log.warning("the console does not end; killing it", extra={"pid": process.pid})
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
