"""Decide when a process stops: at SIGTERM, at Ctrl-C, or, on a leash, when its parent lets go.

A leash is the process's stdin: it ends when the parent closes it or dies, even suddenly. So the workers of a
node and the brokers of tests never outlive the process that started them.

The first signal, or the end of the leash, starts a clean shutdown. A second signal ends the process at once.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable

GIVE_UP_SECONDS = 8.0
_AT_ONCE = 128  # plus the signal's number: the exit status, as shells report it


def stop_event(*, on_leash: bool = False, last_act: Callable[[], None] | None = None) -> asyncio.Event:
    """Return an event for the running loop that is set when the process should stop. `last_act` is called
    before the process ends at once."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    signals = 0

    def heard(number: int) -> None:
        nonlocal signals
        signals += 1
        if signals > 1:
            if last_act is not None:
                last_act()
            os._exit(_AT_ONCE + number)
        event.set()

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            loop.remove_reader(sys.stdin.fileno())
            event.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, heard, number)
    if on_leash:
        loop.add_reader(sys.stdin.fileno(), read)
    return event


@contextlib.asynccontextmanager
async def giving_up(
    stop: asyncio.Event, act: Callable[[], None], seconds: float = GIVE_UP_SECONDS
) -> AsyncIterator[None]:
    """Call `act` if the block has not ended `seconds` after the process was told to stop. `act` cancels long
    waits, such as requests while the store is away."""

    async def wait() -> None:
        await stop.wait()
        await asyncio.sleep(seconds)
        act()

    waiting = asyncio.create_task(wait())
    try:
        yield
    finally:
        waiting.cancel()
