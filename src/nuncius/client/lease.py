"""A message in hand: it comes again, to whoever asks next, unless its consumer says it is done with it."""

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from nuncius.client import errors
from nuncius.client.connection.caller import Caller
from nuncius.client.connection.link import Link
from nuncius.client.model import Message
from nuncius.wire import packets
from nuncius.wire.packets import Packet


class AsyncLease:
    """Settle or release it; or use it in an `async with` block, which does either at its end. It lives by the
    connection on which it came: a message that is in hand when that breaks comes again."""

    def __init__(
        self,
        caller: Caller,
        link: Link | None,
        timeout: float,
        leased: packets.LeasedMessage,
        message: Message,
    ) -> None:
        self._caller = caller
        self._link = link
        self._timeout = timeout
        self._number = leased.lease
        self._is_over = False
        self.message = message
        self.attempts = leased.attempts
        """How often the message was delivered before, without success."""
        self.origin = leased.origin
        """The id that the message had at first; the same over all attempts."""

    async def settle(self) -> None:
        """The message is dealt with; it is gone for good."""
        await self._tell(packets.Settle)

    async def release(self, reason: str | None = None) -> None:
        """The message comes again: with a reason as a failed attempt, after a while or, after too many, as a
        dead letter; without one at once, as if nobody had had it."""
        await self._tell(packets.Release, reason)

    async def _tell(self, kind: Callable[..., Packet], *more: Any) -> None:
        if self._is_over:
            raise errors.InvalidInput("this message was settled or released before")
        if self._link is None or self._link is not self._caller.link:
            raise errors.LeaseLost("the connection on which the message came is gone; it comes again")
        packet = kind(self._caller.next_request(), [self._number], *more)
        await self._caller.call(packet, self._timeout, repeatable=False)
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
            with contextlib.suppress(errors.NunciusError):  # it comes again anyway, when the connection ends
                await self.release(_describe(error))


async def ask_for_leases(
    caller: Caller, packet: packets.Lease, timeout: float
) -> tuple[packets.Leased, Link | None]:
    """The answer, and the connection on which it came. It may be asked for again on another connection: what
    was leased on this one goes back with it. What comes when nobody waits for it any more goes back, too."""
    future: asyncio.Future[tuple[packets.Leased, Link | None]] = asyncio.get_running_loop().create_future()

    def done(answer: Any) -> None:
        if future.done():
            give_back(caller, answer)
        elif isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result((answer, caller.link))

    caller.submit(packet, done, timeout, repeatable=True)
    try:
        return await future
    except asyncio.CancelledError:
        caller.withdraw(packet.request)
        if not future.cancelled() and future.exception() is None:
            give_back(caller, future.result()[0])
        raise


def give_back(caller: Caller, answer: Any) -> None:
    """Nobody has seen what is in this answer."""
    if isinstance(answer, packets.Leased) and answer.messages:
        leases = [each.lease for each in answer.messages]
        caller.tell(packets.Release(caller.next_request(), leases))


def _describe(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
