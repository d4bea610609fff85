"""The feeds of one connection, which push entries of several topics in the order of sending.

Each feed looks for entries by itself. It pushes at once those that this node did not store, or stored too
long ago to remember. It only fetches the others; `hand_over` then pushes the fetched entries of all feeds in
order, until it comes to entries that are not fetched yet. Their feed goes on when it has them.

A feed whose subscriber has reached its limit of unacknowledged entries does not hold up the others.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from nuncius.broker.delivery.push.send_order import SendOrder, SentStretch

if TYPE_CHECKING:
    from nuncius.broker.delivery.push.feed import Feed

MAX_ENTRIES = 500  # handed over in one go
MAX_BYTES = 1 << 20


class OrderedFeeds:
    def __init__(self, order: SendOrder) -> None:
        self._order = order
        # By feed: the number of the topic's last stretch when the feed had pushed everything.
        self._feeds: dict[Feed, int] = {}

    @property
    def are_several(self) -> bool:
        return len(self._feeds) > 1

    def add(self, feed: "Feed") -> None:
        self._feeds[feed] = 0
        for each in self._to_watch(feed):
            self._order.watch(_topic_of(each))

    def remove(self, feed: "Feed") -> None:
        if feed not in self._feeds:
            return
        for each in self._to_watch(feed):
            self._order.unwatch(_topic_of(each))
        del self._feeds[feed]
        for each in self._feeds:  # they may have waited for this one
            each.wake()

    def _to_watch(self, feed: "Feed") -> Sequence["Feed"]:
        """Return the feeds that need order because of this one. A single feed needs none."""
        if len(self._feeds) == 2:
            return list(self._feeds)
        return [feed] if self.are_several else []

    def ordered_from(self, feed: "Feed", partition: int, position: int) -> int | None:
        """Return the offset, from this position on, from which entries must be pushed in order. None: all
        entries there may be pushed at once."""
        if not self.are_several:
            return None
        topic_id = _topic_of(feed)
        stretch = self._order.find(topic_id, partition, position)
        if stretch is not None:
            return max(position, stretch.start)
        # An entry may be visible a moment before the node that stores it learns its offset.
        return position if self._order.is_under_way(topic_id) else None

    def hand_over(self) -> bool:
        """Push the next entries in order, as far as they are fetched. Return False if there were none."""
        line = [
            (stretch, n, partition, feed)
            for n, feed in enumerate(self._feeds)
            for stretch, partition in self._next_of(feed)
        ]
        heapify(line)
        entries, size = MAX_ENTRIES, MAX_BYTES
        while line:
            _, n, partition, feed = line[0]
            if feed.room() <= 0:
                heappop(line)
                continue
            found = None
            if entries > 0 and size > 0 and not feed.is_looking:
                found = feed.give_fetched(partition, line[0][0].end, min(feed.room(), entries))
            if found is None:
                if not feed.is_looking:  # else it comes here by itself
                    feed.wake()
                break
            entries -= found.end - found.start
            size -= sum(map(len, found.chunk.entries.bodies[found.start : found.end]))
            following = self._order.find(_topic_of(feed), partition, found.next_offset)
            if following is None:
                heappop(line)
            else:
                heapreplace(line, (following, n, partition, feed))
        return entries < MAX_ENTRIES

    def _next_of(self, feed: "Feed") -> Sequence[tuple[SentStretch, int]]:
        """Return the next stretch of each partition that has one."""
        topic_id = _topic_of(feed)
        latest = self._order.latest(topic_id)
        if self._feeds[feed] == latest:
            return ()
        found = [
            (stretch, partition)
            for partition, (_, position) in feed.cursor.places.items()
            if (stretch := self._order.find(topic_id, partition, position)) is not None
        ]
        if not found:
            self._feeds[feed] = latest
        return [each for each in found if not feed.cursor.has_found_nothing(each[1])]


def _topic_of(feed: "Feed") -> int:
    return feed.cursor.topic.topic_id
