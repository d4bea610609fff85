"""A node in a thread of its own, and stomp.py, a client that blocks, to talk to it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from queue import Queue
from typing import Any

import stomp

from doors.stomp.peer import running_node
from node_thread import in_a_thread
from nuncius.doors.stomp.frames.versions import Version

SECONDS = 60.0
KINDS = {
    Version.V10: stomp.StompConnection10,
    Version.V11: stomp.StompConnection11,
    Version.V12: stomp.StompConnection12,
}


def node_in_a_thread(dsn: str, heart_beat_ms: int = 1000) -> AbstractContextManager[int]:
    """The port of a node that runs until the end of the block."""
    return in_a_thread(running_node(dsn, heart_beat_ms=heart_beat_ms))


class Ear(stomp.ConnectionListener):  # type: ignore[misc]  # it ships no types
    """Keeps what a connection hears."""

    def __init__(self) -> None:
        self._messages: Queue[Any] = Queue()
        self._receipts: Queue[str] = Queue()
        self._errors: Queue[Any] = Queue()
        self._ends: Queue[None] = Queue()
        self._beats: Queue[None] = Queue()

    def on_message(self, frame: Any) -> None:
        self._messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self._receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self._errors.put(frame)

    def on_disconnected(self) -> None:
        self._ends.put(None)

    def on_heartbeat(self) -> None:
        self._beats.put(None)

    def message(self) -> Any:
        return self._messages.get(timeout=SECONDS)

    def receipt(self) -> str:
        return self._receipts.get(timeout=SECONDS)

    def error(self) -> Any:
        return self._errors.get(timeout=SECONDS)

    def beat(self) -> None:
        self._beats.get(timeout=SECONDS)

    def end(self) -> None:
        self._ends.get(timeout=SECONDS)


@contextmanager
def stomp_py(
    port: int, version: Version, *, passcode: str | None = "secret", **options: Any
) -> Iterator[tuple[Any, Ear]]:
    """A connection of stomp.py, and what it hears."""
    connection = KINDS[version]([("127.0.0.1", port)], **options)
    ear = Ear()
    connection.set_listener("ear", ear)
    connection.connect("me", passcode, wait=True)
    try:
        yield connection, ear
    finally:
        if connection.is_connected():
            connection.disconnect(receipt="bye")
            while ear.receipt() != "bye":
                pass
            ear.end()
