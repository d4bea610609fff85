"""Several worker processes behind the same ports.

The supervisor listens on each port once per worker (SO_REUSEPORT): the kernel spreads connections over the
workers, and no port is lost while a worker is replaced. A worker inherits its sockets, with the connections
that wait on them. A worker that dies is restarted, at first after a short and then after longer and longer
pauses. The supervisor itself carries no messages.

Each worker has a number, which its successor takes over. All share a private directory, where they find each
other, so that any worker can answer for the whole node.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import msgspec

from nuncius.node import child, listeners
from nuncius.node.console_process import ConsoleProcess
from nuncius.node.listeners import Listeners
from nuncius.node.node import (
    Announce,
    Endpoints,
    NodeError,
    NodeSettings,
    Worker,
    warn_if_exposed,
)
from nuncius.node.stopping import stop_event
from nuncius.node.worker import WorkerOrders, WorkerReport
from nuncius.store import tempdirs
from nuncius.store.tempdirs import Owned

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.1
LAST_PAUSE = 10.0
STEADY_SECONDS = 30.0  # a worker that ran this long restarts after the first, short pause
SHORT = 60  # bytes of a path that leave room for a socket's name; both have at most 104


def run(
    settings: NodeSettings,
    listeners: Listeners,
    announce: Announce,
    *,
    log_level: str,
    log_format: str,
) -> None:
    """Run a worker for each set of listening sockets until told to stop."""
    with _meeting_place() as directory:
        orders = WorkerOrders(settings, log_level, log_format)
        asyncio.run(_serve(orders, listeners, directory, announce))


async def _serve(orders: WorkerOrders, listeners: Listeners, directory: Owned, announce: Announce) -> None:
    """Run the supervisor, with one console for all workers."""
    settings = orders.settings
    keeper = ConsoleProcess(settings.dsn, read_only=settings.read_only_console)
    port = None if settings.ports.http is None else keeper.open()
    try:
        settings = msgspec.structs.replace(settings, console_port=port)
        supervisor = Supervisor(msgspec.structs.replace(orders, settings=settings), listeners, directory)
        await supervisor.serve(announce)
    finally:
        await keeper.close()


class Supervisor:
    def __init__(self, orders: WorkerOrders, listeners: Listeners, directory: Owned) -> None:
        self._orders = orders
        self._listeners = listeners
        self._workers = len(listeners.sockets)
        self._directory = directory
        self._running: set[asyncio.subprocess.Process] = set()

    async def serve(self, announce: Announce) -> None:
        stop = stop_event(on_leash=self._orders.settings.on_leash, last_act=self._end_at_once)
        warn_if_exposed(self._orders.settings.host)
        log.info("starting workers", extra={"workers": self._workers})
        keepers: list[asyncio.Task[None]] = []
        stopping = asyncio.create_task(_wait_for(stop))
        try:
            # The first worker migrates the schema; if it fails, the start fails.
            endpoints = await self._start_all(keepers, stop, stopping)
            if endpoints is not None:
                with announce(endpoints):
                    await stopping
        finally:
            stop.set()
            stopping.cancel()
            self._listeners.close()  # workers do the same; connections that wait on an unread socket are lost
            self._signal(signal.SIGTERM)
            await asyncio.gather(*keepers)

    def _end_at_once(self) -> None:
        self._signal(signal.SIGKILL)
        shutil.rmtree(self._directory.path, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        for process in list(self._running):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    async def _start_all(
        self,
        keepers: list[asyncio.Task[None]],
        stop: asyncio.Event,
        stopping: asyncio.Task[None],
    ) -> Endpoints | None:
        """Start all workers. Return their endpoints, or None if the node is stopped before."""
        endpoints: Endpoints | None = None
        for some in (range(1, 2), range(2, self._workers + 1)):
            reports: list[asyncio.Future[WorkerReport]] = []
            for number in some:
                report: asyncio.Future[WorkerReport] = asyncio.get_running_loop().create_future()
                keepers.append(asyncio.create_task(self._keep(number, report, stop)))
                reports.append(report)
            for report in reports:
                either: set[asyncio.Future[Any]] = {report, stopping}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if stop.is_set():
                    return None
                if report.result().endpoints is None:
                    raise NodeError(report.result().error)
                endpoints = report.result().endpoints
        return endpoints

    async def _keep(self, number: int, first: asyncio.Future[WorkerReport], stop: asyncio.Event) -> None:
        """Keep the worker with this number running. `first` receives its first report."""
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while not stop.is_set():
            began = loop.time()
            try:
                end = await self._live(number, first, stop)
            except OSError as error:
                reason = f"a worker cannot be started: {error.strerror or error}"
                end = {"error": reason}
                if not first.done():
                    first.set_result(WorkerReport(error=reason))
            if stop.is_set():
                return
            log.error("a worker died; starting another", extra={"worker": number, **end})
            if loop.time() - began > STEADY_SECONDS:
                pause = FIRST_PAUSE
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stop.wait()
            pause = min(2 * pause, LAST_PAUSE)

    async def _live(
        self, number: int, first: asyncio.Future[WorkerReport], stop: asyncio.Event
    ) -> dict[str, object]:
        """Run one worker until it ends. Return facts about its end, for the log."""
        process = await self._start(number)
        if stop.is_set():
            process.terminate()  # it started after the others were told to stop
        report = await child.first_report(process, WorkerReport(error="a worker died while it started"))
        if not first.done():
            first.set_result(report)
        elif report.endpoints is not None:
            log.warning("a worker runs again", extra={"worker": number, "pid": process.pid})
        code = await process.wait()
        self._running.discard(process)
        self._listeners.pause(number)
        return {"pid": process.pid, "code": code, "error": report.error}

    async def _start(self, number: int) -> asyncio.subprocess.Process:
        worker = Worker(number, self._workers, str(self._directory.path))
        settings = msgspec.structs.replace(self._orders.settings, worker=worker, on_leash=True)
        sockets = listeners.numbers(self._listeners.sockets[number - 1])
        orders = msgspec.structs.replace(self._orders, settings=settings, sockets=sockets)
        descriptors = [self._directory.lock, *(each for some in sockets.values() for each in some)]
        process = await child.start([sys.executable, "-m", "nuncius.node.worker"], orders, descriptors)
        self._running.add(process)
        return process


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


@contextlib.contextmanager
def _meeting_place() -> Iterator[Owned]:
    """Create a directory for this account only, with a path short enough for sockets."""
    usual = tempfile.gettempdir()
    parent = usual if len(os.fsencode(usual)) <= SHORT else "/tmp"  # noqa: S108 - what is made there is private
    made = tempdirs.make(parent=parent)
    try:
        yield made
    finally:
        made.remove()
