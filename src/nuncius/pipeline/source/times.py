"""Conversion of times to offsets.

The time of an entry is read from the store's clock while the entry is stored, so times increase with offsets,
except where that clock was set back. We assume that it is never set back by CLOCK_SLACK or more at once: a
binary search for a time that much earlier (or later) is on the safe side, and from there entries are checked
one by one. The result is exact: the first entry not before a time, the last before it.
"""

from nuncius.pipeline.catalogue import Stores, TopicPartition
from nuncius.pipeline.source.options import moment
from nuncius.store.queries import procedure, query

CLOCK_SLACK = 10 * 60 * 1_000_000  # microseconds
STEP = 100_000  # entries checked in one transaction

_FIRST = query("source", "first_not_before")
_LAST = query("source", "last_before")


def first_not_before(stores: Stores, partition: TopicPartition, time: int) -> int:
    """Return the offset of the first entry that is not before a time or, without one, the partition's end."""
    low = _search(stores, partition, time - CLOCK_SLACK)
    while low < partition.next:
        high = min(low + STEP, partition.next)
        rows = stores.rows(partition.dsn, _FIRST, partition.partition_id, low, high, moment(time))
        if rows:
            return int(rows[0]["found"])
        low = high
    return partition.next


def end_before(stores: Stores, partition: TopicPartition, time: int) -> int:
    """Return the offset after the last entry before a time or, without one, the partition's beginning."""
    high = _search(stores, partition, time + CLOCK_SLACK)
    while high > partition.first:
        low = max(high - STEP, partition.first)
        rows = stores.rows(partition.dsn, _LAST, partition.partition_id, low, high, moment(time))
        if rows:
            return int(rows[0]["found"]) + 1
        high = low
    return partition.first


def _search(stores: Stores, partition: TopicPartition, time: int) -> int:
    place = (partition.partition_id, partition.first, partition.next)
    rows = stores.rows(partition.dsn, procedure("offset_at", 4), *place, moment(time))
    return int(rows[0][0])
