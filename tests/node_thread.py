"""A node in a thread of its own, for clients that block."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from queue import Queue
from typing import Protocol


class HasPort(Protocol):
    @property
    def port(self) -> int: ...


@contextmanager
def in_a_thread(running: AbstractAsyncContextManager[HasPort]) -> Iterator[int]:
    """The port of a node that runs until the end of the block."""
    ports: Queue[int | BaseException] = Queue()
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        async with running as node:
            stopped = asyncio.Event()
            stop.append((asyncio.get_running_loop(), stopped))
            ports.put(node.port)
            await stopped.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            ports.put(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    port = ports.get(timeout=30)
    if isinstance(port, BaseException):
        raise port
    try:
        yield port
    finally:
        loop, stopped = stop[0]
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
