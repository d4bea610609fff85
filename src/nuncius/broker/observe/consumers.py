"""Count of the connections that consume from each queue and subscription, at this process."""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


class Consumers:
    """Counts of consumers by queue id and by subscription id. A connection counts from its first consume
    until it stops or ends."""

    def __init__(self) -> None:
        self.queues: Counter[int] = Counter()
        self.subscriptions: Counter[int] = Counter()

    def of_queue(self, queue_id: int) -> AbstractContextManager[None]:
        """Count one consumer of a queue as long as the context lasts."""
        return _counted(self.queues, queue_id)

    def of_subscription(self, subscription_id: int) -> AbstractContextManager[None]:
        """Count one consumer of a subscription as long as the context lasts."""
        return _counted(self.subscriptions, subscription_id)


@contextmanager
def _counted(counts: Counter[int], number: int) -> Iterator[None]:
    counts[number] += 1
    try:
        yield
    finally:
        leave(counts, number)


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
