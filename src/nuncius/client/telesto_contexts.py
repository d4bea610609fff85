"""Contexts: the numbers by which a Telesto client recognises the answers to its requests.

An answer that arrives after its request timed out stays in the queue until it is read with the same context.
A client that counts from 1 after each start, or draws random numbers, sooner or later takes such an answer
for the answer to another request. The protocol has 31 bits for a context and no way to assign them, so they
come from the clock: a context is the millisecond of its request, and a client makes no two requests in the
same millisecond, over all its connections in a process. Contexts never run ahead of the clock, so a later
session with the same client id, in this process or another, starts after all contexts used before.

Two limits remain. Two programs that use one client id at the same time may ask in the same millisecond
(register a client for each). Contexts repeat after 24.8 days, which matters only to an answer that has been
unread for exactly that long.
"""

import threading
import time
from weakref import WeakValueDictionary

MILLISECOND = 1_000_000  # nanoseconds
CONTEXTS = 2**31 - 1


class Contexts:
    def __init__(self) -> None:
        # Steps of the wall clock (backwards, for instance) do not affect a running client.
        self._offset = time.time_ns() - time.monotonic_ns()
        self._last = self._now()
        self._lock = threading.Lock()

    def next(self) -> int:
        """Return an unused context. Waits until the clock has one."""
        with self._lock:
            while (now := self._now()) <= self._last:
                time.sleep(0.0002)
            self._last = now
        return now % CONTEXTS + 1

    def _now(self) -> int:
        return (time.monotonic_ns() + self._offset) // MILLISECOND


_lock = threading.Lock()
_of_clients: WeakValueDictionary[int, Contexts] = WeakValueDictionary()


def contexts_of(client_id: int) -> Contexts:
    """Return the contexts of a client, shared by all its connections."""
    with _lock:
        return _of_clients.setdefault(client_id, Contexts())
