"""The interface that a session needs from its connection, TCP or WebSocket."""

from collections.abc import Callable
from typing import Protocol

from nuncius.broker.caller import Caller
from nuncius.broker.footprint import Footprint
from nuncius.doors.replies import Replies


class Carrier(Protocol):
    caller: Caller
    footprint: Footprint
    replies: Replies
    on_end: Callable[[], bool]
    """Called when the client has closed its side. Returns True if answers are outstanding; the session then
    closes."""

    def send(self, data: bytes) -> None:
        """Send bytes. All bytes sent in one turn of the loop go out together."""

    def accept(self, size: int) -> None:
        """Count a request of about that size as unanswered. Reading pauses while there are too many."""

    def answered(self, size: int) -> None: ...

    async def all_answered(self) -> None: ...

    async def writable(self) -> None:
        """Wait until the client has read enough of what it was sent."""

    def close(self) -> None:
        """Close the connection after all sent bytes have gone out."""
