"""What an asyncio subscription keeps in memory."""

import pytest

from nuncius.client import AsyncClient, subscription
from nuncius.doors.telesto import packets


def entries(first: int, *bodies: bytes) -> packets.Entries:
    return packets.Entries(1, 1, first, [0] * len(bodies), list(bodies))


async def test_what_comes_again_takes_no_room(client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that are delivered a second time are dropped, and do not count as kept."""
    monkeypatch.setattr(subscription, "BUFFERED_BYTES", 10)
    paused: list[object] = []
    monkeypatch.setattr(client, "pause", paused.append)
    reading = await client.subscribe("t", "sue", auto_confirm=False)
    reading.attached(1)
    for again in range(3):
        reading.received(entries(0, *[b"abc"] * again, b"abc"))
    batches = [await reading.next_batch() for _ in range(3)]
    assert [[(entry.offset, entry.body) for entry in batch] for batch in batches] == [
        [(n, b"abc")] for n in range(3)
    ]
    assert not paused
    reading.received(entries(3, b"abcdefghijk"))
    assert paused
