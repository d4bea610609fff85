"""The order in which this node stored entries, over all topics.

Offsets give the order of the entries of one partition. A connection that subscribes to several topics expects
more: the entries that another connection sent to them in the order of sending. The node knows that order,
because it stores a connection's entries in it. It remembers the order only for topics of connections that
subscribe to several.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from nuncius.store.calls.publishing import Placed, PublishCall

MAX_STRETCHES = 200_000


class SentStretch(NamedTuple):
    """Consecutive entries of a partition with nothing of another topic in between. Those with lower numbers
    were stored earlier."""

    number: int
    start: int
    end: int


class _SentLine:
    """The stretches of a partition, by offset."""

    __slots__ = ("ends", "numbers", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.numbers: list[int] = []


class SendOrder:
    def __init__(self, max_stretches: int = MAX_STRETCHES) -> None:
        self._max_stretches = max_stretches
        self._count = 0
        self._number = 0
        self._watched: Counter[int] = Counter()  # by topic id: by how many subscriptions
        self._under_way: Counter[int] = Counter()  # by topic id: batches that are sent and not answered
        self._lines: dict[tuple[int, int], _SentLine] = {}  # by topic id and partition
        self._latest: dict[int, int] = {}  # by topic id: the last number
        self._last: _SentLine | None = None  # the line that the last stretch is in

    def watch(self, topic_id: int) -> None:
        """Remember the order of this topic's entries from now on, until `unwatch`."""
        self._watched[topic_id] += 1

    def unwatch(self, topic_id: int) -> None:
        self._watched[topic_id] -= 1
        if self._watched[topic_id]:
            return
        del self._watched[topic_id]
        self._latest.pop(topic_id, None)
        for key in [key for key in self._lines if key[0] == topic_id]:
            self._count -= len(self._lines.pop(key).starts)
        self._last = None

    def begin(self, topic_ids: Iterable[int]) -> None:
        """Note that a batch for these topics is about to be stored."""
        for topic_id in topic_ids:
            self._under_way[topic_id] += 1

    def end(self, topic_ids: Iterable[int]) -> None:
        """Note that the batch is stored or has failed."""
        for topic_id in topic_ids:
            self._under_way[topic_id] -= 1
            if not self._under_way[topic_id]:
                del self._under_way[topic_id]

    def note(self, calls: Sequence[PublishCall], results: Sequence[Any]) -> None:
        """Remember the order of a batch that is stored."""
        if not self._watched:
            return
        for call, placed in zip(calls, results, strict=True):
            if call.topic_id not in self._watched or not isinstance(placed, Placed):
                continue
            if placed.scattered is not None:
                for partition, offset in placed.scattered:
                    self._add(call.topic_id, partition, offset, 1)
            else:
                self._add(call.topic_id, placed.partition, placed.offset, call.rows - placed.skipped)

    def is_under_way(self, topic_id: int) -> bool:
        """Return True if the order of entries of this topic that may be stored is not known yet."""
        return topic_id in self._under_way

    def latest(self, topic_id: int) -> int:
        """Return the number of the topic's last stretch, or 0."""
        return self._latest.get(topic_id, 0)

    def find(self, topic_id: int, partition: int, position: int) -> SentStretch | None:
        """Return the stretch that contains this offset, or else the next one."""
        line = self._lines.get((topic_id, partition))
        if line is None:
            return None
        at = bisect_right(line.ends, position)
        if at == len(line.ends):
            return None
        return SentStretch(line.numbers[at], line.starts[at], line.ends[at])

    def _add(self, topic_id: int, partition: int, offset: int, count: int) -> None:
        if offset < 0 or count <= 0:  # it had been stored before
            return
        line = self._lines.get((topic_id, partition))
        if line is None:
            line = self._lines[topic_id, partition] = _SentLine()
        self._number += 1
        self._latest[topic_id] = self._number
        if line is self._last and line.ends[-1] == offset:
            line.ends[-1] = offset + count
            return
        self._last = line
        # Mostly at the end. Batches of two connections to the store may be noted the other way round.
        at = bisect_right(line.starts, offset)
        line.starts.insert(at, offset)
        line.ends.insert(at, offset + count)
        line.numbers.insert(at, self._number)
        self._count += 1
        if self._count > self._max_stretches:
            self._forget_half()

    def _forget_half(self) -> None:
        """Forget the older half. Subscribers with such a lag get those entries partition by partition."""
        self._count = 0
        for line in self._lines.values():
            for column in (line.starts, line.ends, line.numbers):
                del column[: (len(column) + 1) // 2]
            self._count += len(line.starts)
        self._last = None
