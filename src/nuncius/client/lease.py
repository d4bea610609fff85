"""A leased message: it is redelivered unless its consumer settles it."""

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from nuncius.client import errors
from nuncius.client.connection.link import ClientLink
from nuncius.client.connection.requester import Requester
from nuncius.client.model import Message
from nuncius.wire import packets
from nuncius.wire.packets import Packet


class AsyncLease:
    """A message that is redelivered unless it is settled. Settle or release it, or use it in an `async with`
    block, which settles it, or releases it if the block raises. The lease ends with its connection: an
    unsettled message is then redelivered."""

    def __init__(
        self,
        requester: Requester,
        link: ClientLink | None,
        timeout: float,
        leased: packets.LeasedMessage,
        message: Message,
    ) -> None:
        self._requester = requester
        self._link = link
        self._timeout = timeout
        self._number = leased.lease
        self._is_over = False
        self.message: Message = message
        self.attempts: int = leased.attempts
        """The number of failed deliveries before this one."""
        self.origin: int = leased.origin
        """The id of the message at its first delivery. It stays the same over all attempts."""

    async def settle(self) -> None:
        """Acknowledge the message, which removes it permanently."""
        await self._tell(packets.Settle)

    async def release(self, reason: str | None = None) -> None:
        """Return the message to its queue. With a reason, this counts as a failed attempt: the message is
        retried after a delay or, after too many attempts, becomes a dead letter. Without a reason, it is
        available again at once and no attempt is counted."""
        await self._tell(packets.Release, reason)

    async def _tell(self, kind: Callable[..., Packet], *more: Any) -> None:
        if self._is_over:
            raise errors.InvalidInput("this message was settled or released before")
        if self._link is None or self._link is not self._requester.link:
            raise errors.LeaseLost("the connection on which the message came is gone; it comes again")
        packet = kind(self._requester.next_request(), [self._number], *more)
        await self._requester.call(packet, self._timeout, repeatable=False)
        self._is_over = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_over:
            return
        if error is None:
            await self.settle()
        else:
            with contextlib.suppress(errors.NunciusError):  # else it is redelivered when the connection ends
                await self.release(_describe(error))


def give_back(requester: Requester, answer: Any) -> None:
    """Release the messages of an answer that reached no caller."""
    if isinstance(answer, packets.Leased) and answer.messages:
        leases = [each.lease for each in answer.messages]
        requester.tell(packets.Release(requester.next_request(), leases))


def _describe(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
