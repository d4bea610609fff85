"""Count of the messages for each receiver of a queue, as far as this node knows.

A reader that waits need not look first when there is nothing for it. So after a look that found nothing, the
node counts its own puts and takes; an answer cannot be there before its request is put. The work of other
nodes is not counted: their notifications make the node forget its counts. A wrong count delays a reader
within the time it waits, but never loses a message: a reader gets "nothing" only after a look.
"""

from collections.abc import Iterable, Sequence

from nuncius.store.calls.putting import Letter
from nuncius.store.calls.taking import Message

MOST = 50_000  # counts; beyond that the node forgets all of them


class _Count:
    """Messages for one receiver, all or those with one context."""

    __slots__ = ("arrived", "there")

    def __init__(self, there: int | None) -> None:
        self.there = there  # None: not known
        self.arrived = 0  # messages since the count began


_Counts = dict[tuple[int, int], _Count]  # by receiver and context; 0 is all contexts
Mark = tuple[_Counts, int]


class Balance:
    def __init__(self) -> None:
        self._queues: dict[int, _Counts] = {}
        self._size = 0  # queues, and counts in them

    def is_nothing(self, queue_id: int, receiver: int, context: int) -> bool:
        """Return True if there is surely nothing for this reader."""
        counts = self._queues.get(queue_id)
        if counts is None:
            return False
        return all(count is not None and count.there == 0 for count in _of(counts, receiver, context))

    def mark(self, queue_id: int, receiver: int) -> Mark:
        """Return the state before a look, for `found_nothing`."""
        counts = self._counts(queue_id)
        return counts, _arrived(counts, receiver)

    def found_nothing(self, queue_id: int, receiver: int, mark: Mark) -> None:
        """Record that a look for all messages of this receiver, which began at the mark, found nothing."""
        counts, arrived = mark
        if self._queues.get(queue_id) is counts and _arrived(counts, receiver) == arrived:
            for key in ((receiver, 0), (0, 0)):
                self._count(queue_id, key).there = 0

    def asked(self, queue_id: int, letters: Iterable[Letter]) -> None:
        """Record that requests are about to be put, and so have no answer yet."""
        for letter in letters:
            if letter.context and letter.sender:
                counts = self._counts(queue_id)
                answer = (letter.sender, letter.context)
                is_answer = (letter.receiver, letter.context) in counts
                if not is_answer and answer not in counts:
                    self._count(queue_id, answer).there = 0

    def put(self, queue_id: int, letters: Iterable[Letter]) -> None:
        for letter in letters:
            count = self._count(queue_id, (letter.receiver, 0))
            count.arrived += 1
            if count.there is not None:
                count.there += 1
            if letter.context:
                answer = self._counts(queue_id).get((letter.receiver, letter.context))
                if answer is not None and answer.there is not None:
                    answer.there += 1

    def taken(self, queue_id: int, messages: Sequence[Message]) -> None:
        counts = self._queues.get(queue_id)
        if counts is None:
            return
        for message in messages:
            if message.context and counts.pop((message.receiver_id, message.context), None) is not None:
                self._size -= 1
            count = counts.get((message.receiver_id, 0))
            if count is not None and count.there is not None:
                count.there -= 1  # below 0 as long as the take is known and the put is not

    def forget(self, queue_id: int | None) -> None:
        """Drop the counts of a queue that other nodes may have changed; None: of all queues."""
        if queue_id is None:
            self._queues.clear()
            self._size = 0
        elif queue_id in self._queues:
            self._size -= 1 + len(self._queues.pop(queue_id))

    def _counts(self, queue_id: int) -> _Counts:
        counts = self._queues.get(queue_id)
        if counts is None:
            counts = self._queues[queue_id] = {}
            self._grow()
        return counts

    def _count(self, queue_id: int, key: tuple[int, int]) -> _Count:
        counts = self._counts(queue_id)
        count = counts.get(key)
        if count is None:
            count = counts[key] = _Count(None)
            self._grow()
        return count

    def _grow(self) -> None:
        self._size += 1
        if self._size > MOST:
            self.forget(None)


def _of(counts: _Counts, receiver: int, context: int) -> list[_Count | None]:
    """Return the counts for a reader. An answer (with a context) is for one receiver only."""
    if context:
        return [counts.get((receiver, context))]
    return [counts.get((receiver, 0)), counts.get((0, 0))]


def _arrived(counts: _Counts, receiver: int) -> int:
    return sum(count.arrived for count in _of(counts, receiver, 0) if count is not None)
