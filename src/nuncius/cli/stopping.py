"""When a process should stop: at SIGTERM, at Ctrl-C, or, on a leash, when whoever holds it lets go.

A leash is the process's stdin: it ends when its holder closes it or dies, however suddenly. That is how the
workers of a node and the brokers of tests never outlive what started them.

The first call to stop is answered by a clean shutdown. The second ends the process at once.
"""

import asyncio
import os
import signal
import sys

_AT_ONCE = 128  # the exit status of a process that a signal ended, by the custom of shells


def stop_event(*, on_leash: bool = False) -> asyncio.Event:
    """An event for the running loop that is set when the process should stop."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()

    def stop(number: int) -> None:
        if event.is_set():
            os._exit(_AT_ONCE + number)
        event.set()

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            loop.remove_reader(sys.stdin.fileno())
            stop(signal.SIGHUP)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    if on_leash:
        loop.add_reader(sys.stdin.fileno(), read)
    return event
