"""What a session needs of its connection. TCP gives it, and anything else that carries bytes can."""

from collections.abc import Callable
from typing import Protocol

from nuncius.broker.footprint import Footprint
from nuncius.doors.replies import Replies


class Carrier(Protocol):
    footprint: Footprint
    replies: Replies
    on_end: Callable[[], bool]
    """Called when the client will say no more. True: it is still owed something, and the session closes."""

    def send(self, data: bytes) -> None:
        """Everything sent in one turn of the loop goes out together."""

    def accept(self, size: int) -> None:
        """A request of about that size has to be answered; reading stops while there are too many."""

    def answered(self, size: int) -> None: ...

    async def all_answered(self) -> None: ...

    async def writable(self) -> None:
        """Returns when the client has read enough of what it was sent."""

    def close(self) -> None:
        """Closes after what was sent has gone out."""
