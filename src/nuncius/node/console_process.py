"""Start the console on the first visit, and end it with its node.

The node listens on a port in the console's place. The first connection starts the console process, which
inherits the socket and accepts the connection. So an unused console costs nothing, several workers share one,
and a console that has crashed or gone to sleep is started again by the next visit.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Sequence

import msgspec

from nuncius.doors.listening import listen
from nuncius.node import child, logs
from nuncius.node import program as itself

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
END_SECONDS = 10.0
REFUSE_SECONDS = 2.0


class ConsoleOrders(msgspec.Struct, frozen=True):
    """Settings that the node sends to a console process."""

    dsn: str
    socket: int
    read_only: bool = False
    log_level: str = "warning"
    log_format: str = "text"


class ConsoleReport(msgspec.Struct, frozen=True):
    """A console's report after its start: an error, or none."""

    error: str = ""


class ConsoleProcess:
    def __init__(self, dsn: str, *, read_only: bool = False, command: Sequence[str] | None = None) -> None:
        self._dsn = dsn
        self._read_only = read_only
        self._command = command or console_command()
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._listening: socket.socket | None = None

    def open(self) -> int:
        """Listen for the console and return its port."""
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
        """Run the console once, until it ends."""
        assert self._listening is not None
        try:
            process = self._process = await self._start()
        except OSError as error:
            await self._refuse(str(error))
        else:
            report = await child.first_report(process, ConsoleReport("it died while it started"))
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
        level, style = _logging()
        orders = ConsoleOrders(self._dsn, number, self._read_only, level, style)
        return await child.start(self._command, orders, [number])

    async def _refuse(self, error: str) -> None:
        """Answer waiting visitors with the reason why the console does not start."""
        assert self._listening is not None
        log.error("the console does not start", extra={"error": error})
        text = f"the console does not start: {error}\n".encode()
        head = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n"
        answer = head + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(text) + text
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # no other connection waits
                return
            connection.setblocking(False)
            with connection, contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(REFUSE_SECONDS):
                    await self._loop.sock_recv(connection, 1 << 16)  # else closing would reset it
                    await self._loop.sock_sendall(connection, answer)


def console_command() -> list[str]:
    return itself.command("console", "--on-leash")


def _logging() -> tuple[str, str]:
    """Return level and format of this process's log, for a child process."""
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
