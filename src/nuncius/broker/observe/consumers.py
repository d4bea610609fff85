"""Count of the connections that consume from each queue and subscription, at this process."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Consumers:
    """Counts of consumers by queue id and by subscription id. A connection counts from its first consume
    until it stops or ends."""

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
        """Join the consumers of a queue, once per connection."""
        if queue_id not in self._queues:
            self._queues.add(queue_id)
            self._counts[queue_id] += 1

    def end(self) -> None:
        """Leave all queues."""
        while self._queues:
            leave(self._counts, self._queues.pop())


def leave(counts: Counter[int], number: int) -> None:
    counts[number] -= 1
    if not counts[number]:
        del counts[number]
