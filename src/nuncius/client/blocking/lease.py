"""A message in hand, for programs without asyncio."""

from types import TracebackType
from typing import Self

from nuncius.client.blocking.background import Background
from nuncius.client.lease import AsyncLease
from nuncius.client.model import Message


class Lease:
    """Settle or release it; or use it in a `with` block, which does either at its end. It lives by the
    connection on which it came: a message that is in hand when that breaks comes again."""

    def __init__(self, lease: AsyncLease, background: Background) -> None:
        self._async = lease
        self._background = background
        self.message: Message = lease.message
        self.attempts: int = lease.attempts
        """How often the message was delivered before, without success."""
        self.origin: int = lease.origin
        """The id that the message had at first; the same over all attempts."""

    def settle(self) -> None:
        """The message is dealt with; it is gone for good."""
        self._background.call(self._async.settle)

    def release(self, reason: str | None = None) -> None:
        """The message comes again: with a reason as a failed attempt, after a while or, after too many, as a
        dead letter; without one at once, as if nobody had had it."""
        self._background.call(self._async.release, reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.call(self._async.__aexit__, kind, error, trace)
