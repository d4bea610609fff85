"""The order of stored entries over topics: bookkeeping without a store."""

from collections.abc import Sequence
from typing import Any

from nuncius.broker.delivery.push.send_order import SendOrder, SentStretch
from nuncius.store.calls.publishing import Placed, PublishCall

A, B, OTHER = 1, 2, 3


def call(topic_id: int, rows: int = 1) -> PublishCall:
    made = PublishCall(lambda _: None, None, "t", [b"x"] * rows, None, None, None, None, None, 0, 0)
    made.topic_id = topic_id
    return made


def watching(**options: Any) -> SendOrder:
    order = SendOrder(**options)
    for topic_id in (A, B):
        order.watch(topic_id)
    return order


def note(order: SendOrder, *stored: tuple[int, int, int]) -> None:
    """Topic, offset, number of entries."""
    order.note([call(topic, rows) for topic, _, rows in stored], [Placed(1, at, 0) for _, at, _ in stored])


def starts(order: SendOrder, topic_id: int, end: int, partition: int = 1) -> Sequence[int]:
    found, position = [], 0
    while (stretch := order.find(topic_id, partition, position)) and position < end:
        found.append(stretch.start)
        position = stretch.end
    return found


def test_stretches() -> None:
    """Entries that follow each other are one stretch, until one of another topic comes."""
    order = watching()
    note(order, (A, 0, 2), (A, 2, 1), (B, 0, 1), (A, 3, 1))
    assert order.find(A, 1, 0) == SentStretch(1, 0, 3)
    assert order.find(A, 1, 2) == SentStretch(1, 0, 3)
    second, third = order.find(B, 1, 0), order.find(A, 1, 3)
    assert second is not None
    assert third is not None
    assert 1 < second.number < third.number == order.latest(A)
    assert order.find(A, 1, 4) is None
    assert order.find(B, 2, 0) is None


def test_entries_of_others_are_between_stretches() -> None:
    """What this node did not store is in no stretch; a look from there finds the next."""
    order = watching()
    note(order, (A, 0, 1), (A, 5, 1))
    assert order.find(A, 1, 1) == SentStretch(2, 5, 6)


def test_batches_that_are_noted_late() -> None:
    """Stretches are in the order of offsets, whichever batch was answered first."""
    order = watching()
    note(order, (A, 5, 1))
    note(order, (B, 0, 1), (A, 2, 1))
    assert starts(order, A, 10) == [2, 5]


def test_duplicates_and_scattered_entries() -> None:
    """Entries that had been stored before are left out; those of one call may be in several partitions."""
    order = watching()
    results = [
        Placed(1, -1, 3),
        Placed(1, 7, 1),
        Placed(0, -1, 1, [(2, 4), (1, 9), (2, -1)]),
    ]
    order.note([call(A, 3), call(A, 3), call(A, 3)], results)
    assert starts(order, A, 10) == [7, 9]
    assert starts(order, A, 10, partition=2) == [4]


def test_what_is_not_watched() -> None:
    """Other topics cost nothing."""
    order = watching()
    note(order, (OTHER, 0, 1))
    assert order.find(OTHER, 1, 0) is None
    order.watch(A)
    note(order, (A, 0, 1))
    order.unwatch(A)
    assert order.latest(A)
    order.unwatch(A)
    assert not order.latest(A)
    assert order.find(A, 1, 0) is None


def test_it_does_not_grow() -> None:
    """Of very many stretches, the older half of each partition is forgotten."""
    order = watching(max_stretches=10)
    for n in range(100):
        note(order, (A, n, 1), (B, n, 1))
    for topic_id in (A, B):
        kept = starts(order, topic_id, 100)
        assert 2 <= len(kept) <= 6
        assert kept[-1] == 99


def test_under_way() -> None:
    """A topic is under way while any batch for it is."""
    order = watching()
    order.begin({A})
    order.begin({A, B})
    order.end({A})
    assert order.is_under_way(A)
    order.end({A, B})
    assert not order.is_under_way(A)
    assert not order.is_under_way(B)
