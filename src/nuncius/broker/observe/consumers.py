"""How many connections consume from which queue and subscription, at this process. For those who look."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Consumers:
    """Count consumers by the number of their queue or subscription. A connection joins once for each, when it
    first consumes from it, and leaves when it stops or ends."""

    def __init__(self) -> None:
        self.queues: Counter[int] = Counter()
        self.subscriptions: Counter[int] = Counter()

    @contextmanager
    def of_subscription(self, subscription_id: int) -> Iterator[None]:
        """Count one consumer as long as the context lasts."""
        self.subscriptions[subscription_id] += 1
        try:
            yield
        finally:
            leave(self.subscriptions, subscription_id)


class Consumed:
    """The queues that one connection consumes from."""

    def __init__(self, consumers: Consumers) -> None:
        self._counts = consumers.queues
        self._queues: set[int] = set()

    def note(self, queue_id: int) -> None:
        """Join the consumers of a queue, unless this connection has."""
        if queue_id not in self._queues:
            self._queues.add(queue_id)
            self._counts[queue_id] += 1

    def end(self) -> None:
        """Leave them all."""
        while self._queues:
            leave(self._counts, self._queues.pop())


def leave(counts: Counter[int], number: int) -> None:
    counts[number] -= 1
    if not counts[number]:
        del counts[number]
