"""A node in a thread of its own, and stomp.py, a client that blocks, to talk to it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

import stomp

from doors.stomp.peer import running_node
from nuncius.doors.stomp.versions import Version

SECONDS = 20.0
KINDS = {
    Version.V10: stomp.StompConnection10,
    Version.V11: stomp.StompConnection11,
    Version.V12: stomp.StompConnection12,
}


@contextmanager
def node_in_a_thread(dsn: str, heart_beat_ms: int = 1000) -> Iterator[int]:
    """The port of a node that runs until the end of the block."""
    ports: Queue[int | BaseException] = Queue()
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        async with running_node(dsn, heart_beat_ms=heart_beat_ms) as node:
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


class Ear(stomp.ConnectionListener):  # type: ignore[misc]  # it ships no types
    """Keeps what a connection hears."""

    def __init__(self) -> None:
        self._messages: Queue[Any] = Queue()
        self._receipts: Queue[str] = Queue()
        self._errors: Queue[Any] = Queue()
        self._ends: Queue[None] = Queue()

    def on_message(self, frame: Any) -> None:
        self._messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self._receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self._errors.put(frame)

    def on_disconnected(self) -> None:
        self._ends.put(None)

    def message(self) -> Any:
        return self._messages.get(timeout=SECONDS)

    def receipt(self) -> str:
        return self._receipts.get(timeout=SECONDS)

    def error(self) -> Any:
        return self._errors.get(timeout=SECONDS)

    def end(self) -> None:
        self._ends.get(timeout=SECONDS)


@contextmanager
def stomp_py(port: int, version: Version, **options: Any) -> Iterator[tuple[Any, Ear]]:
    """A connection of stomp.py, and what it hears."""
    connection = KINDS[version]([("127.0.0.1", port)], **options)
    ear = Ear()
    connection.set_listener("ear", ear)
    connection.connect("me", "secret", wait=True)
    try:
        yield connection, ear
    finally:
        if connection.is_connected():
            connection.disconnect(receipt="bye")
            while ear.receipt() != "bye":
                pass
            ear.end()
