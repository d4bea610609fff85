"""A leased message, for synchronous programs."""

from types import TracebackType
from typing import Self

from nuncius.client.blocking.background import Background
from nuncius.client.lease import AsyncLease
from nuncius.client.model import Message


class Lease:
    """A message that is redelivered unless it is settled. Settle or release it, or use it in a `with` block,
    which settles it, or releases it if the block raises. The lease ends with its connection: an unsettled
    message is then redelivered."""

    def __init__(self, lease: AsyncLease, background: Background) -> None:
        self._async = lease
        self._background = background
        self.message: Message = lease.message
        self.attempts: int = lease.attempts
        """The number of failed deliveries before this one."""
        self.origin: int = lease.origin
        """The id of the message at its first delivery. It stays the same over all attempts."""

    def settle(self) -> None:
        """Acknowledge the message, which removes it permanently."""
        self._background.call(self._async.settle)

    def release(self, reason: str | None = None) -> None:
        """Return the message to its queue. With a reason, this counts as a failed attempt: the message is
        retried after a delay or, after too many attempts, becomes a dead letter. Without a reason, it is
        available again at once and no attempt is counted."""
        self._background.call(self._async.release, reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.call(self._async.__aexit__, kind, error, trace)
