"""What an asyncio subscription keeps in memory."""

from typing import Any, cast

import pytest

from nuncius.client import Entry, subscription
from nuncius.client.subscription import AsyncSubscription
from nuncius.client.topic_calls import TopicCalls
from nuncius.doors.telesto import packets


class Node:
    """In place of a client: notes when it is to stop reading."""

    def __init__(self) -> None:
        self.pauses = 0

    def pause(self, _: object) -> None:
        self.pauses += 1

    def credit(self, *_: Any) -> None:
        pass


def entries(first: int, *bodies: bytes) -> packets.Entries:
    return packets.Entries(1, 1, first, [0] * len(bodies), list(bodies))


def entry(offset: int, body: bytes) -> Entry:
    return Entry(body, 0, None, "t", 1, offset, None)


async def test_what_comes_again_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that are delivered a second time are dropped, and do not count as kept."""
    monkeypatch.setattr(subscription, "BUFFERED_BYTES", 10)
    node = Node()
    reading = AsyncSubscription(cast("TopicCalls", node), "t", "sue", prefetch=100, auto_confirm=False)
    reading.attached(1)
    for again in range(3):
        reading.received(entries(0, *[b"abc"] * again, b"abc"))
    assert [await reading.next_batch() for _ in range(3)] == [[entry(n, b"abc")] for n in range(3)]
    assert node.pauses == 0
    reading.received(entries(3, b"abcdefghijk"))
    assert node.pauses == 1
