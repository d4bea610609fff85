"""Contexts: the numbers by which a Telesto client knows the answers to its requests.

An answer that comes after its request was given up stays in the queue until somebody reads it with the same
context. A client that counts from 1 after each start, or draws numbers at random, sooner or later takes
such an answer for that to another question. The protocol has 31 bits for a context and nothing that would
hand them out, so they come from the clock: a context is the millisecond of its request, and no two requests
of a client are made in the same one, on however many connections of a process it has. It never runs ahead
of the clock, so whoever continues with the same client id later, in this process or in another, begins behind
everything that was used before.

What remains: two programs that use one client id at the same time may ask in the same millisecond (register
a client for each), and numbers come again after 24.8 days, which matters to an answer that has lain unread
for exactly that long.
"""

import threading
import time
from weakref import WeakValueDictionary

MILLISECOND = 1_000_000  # nanoseconds
CONTEXTS = 2**31 - 1


class Contexts:
    def __init__(self) -> None:
        # Steps of the wall clock, back for instance, do not concern a running client.
        self._offset = time.time_ns() - time.monotonic_ns()
        self._last = self._now()
        self._lock = threading.Lock()

    def next(self) -> int:
        """A context that no request has had; waits until the clock has one."""
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
    """Those of a client, the same for all its connections."""
    with _lock:
        return _of_clients.setdefault(client_id, Contexts())
