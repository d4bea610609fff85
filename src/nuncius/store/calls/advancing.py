"""Moving consumers on: many calls become one `advance_many`, one `unread_many` or one `find_consumed`."""

import secrets
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec

from nuncius.store.combiner.combiner import Call, Detour
from nuncius.store.driver import Connection

ADVANCE = "select nuncius.advance_many($1, $2, $3, $4, $5, $6, $7, $8, $9)"
UNREAD = "select request, partitions, partition_ids, positions from nuncius.unread_many($1)"
RECALL = "select request, partition, entry_offset from nuncius.find_consumed($1, $2)"

MOVED, NO_SUBSCRIPTION, BUSY = -1, -2, -3
ADVANCED, ELSEWHERE = 0, 1
_OUTCOMES: dict[int, int | Detour] = {
    MOVED: ADVANCED,
    NO_SUBSCRIPTION: NO_SUBSCRIPTION,
    BUSY: Detour.BUSY,
}
PER_CALL = 200  # bytes of memory a call costs


class AdvanceCall(Call):
    """One entry for a subscription: its place moves from that entry to the next."""

    __slots__ = ("mover", "offset", "partition_id", "request_key", "subscription_id")

    def __init__(
        self,
        done: Callable[[Any], None],
        subscription_id: int,
        partition_id: int,
        offset: int,
        request_key: str | None,
    ) -> None:
        # Made for every message: the parent's fields are set here rather than by a second call.
        self.done = done
        self.caller: Hashable = subscription_id
        self.key: Hashable = subscription_id
        self.rows = 1
        self.size = PER_CALL
        self.repeatable = True
        self.subscription_id = subscription_id
        self.partition_id = partition_id
        self.offset = offset
        self.request_key = request_key
        self.mover = 0  # who moves it, the same when it is sent again; 0: it was not sent yet


class Unread(msgspec.Struct, frozen=True, gc=False):
    """The partitions where a subscription may have something unread, and where it stands in them."""

    partitions: list[int]
    partition_ids: list[int]
    positions: list[int]


class UnreadCall(Call):
    __slots__ = ("subscription_id",)

    def __init__(self, done: Callable[[Any], None], subscription_id: int) -> None:
        super().__init__(done, subscription_id, None, 1, PER_CALL, True)
        self.subscription_id = subscription_id


class RecallCall(Call):
    __slots__ = ("request_key", "subscription_id")

    def __init__(self, done: Callable[[Any], None], subscription_id: int, request_key: str) -> None:
        super().__init__(done, subscription_id, None, 1, PER_CALL, True)
        self.subscription_id = subscription_id
        self.request_key = request_key


class _Stretch:
    """Consecutive entries of one partition for one subscription."""

    __slots__ = ("calls", "end", "first")

    def __init__(self, first: int) -> None:
        self.first = self.end = first
        self.calls: list[AdvanceCall] = []


async def advance(connection: Connection, calls: Sequence[AdvanceCall], wait: bool) -> list[Any]:
    """Carries out a batch. Results: ADVANCED, ELSEWHERE (the place is not where the caller thought),
    NO_SUBSCRIPTION or a Detour."""
    stretches: dict[tuple[int, int], _Stretch] = {}
    items, keys, offsets = [], [], []
    for call in calls:
        place = (call.subscription_id, call.partition_id)
        stretch = stretches.get(place)
        if stretch is None:
            stretch = stretches[place] = _Stretch(call.offset)
        if call.offset == stretch.end:  # else somebody has lost the thread, and is told so
            stretch.calls.append(call)
            stretch.end += 1
    mover = secrets.randbits(63)
    numbers = {place: n for n, place in enumerate(stretches, 1)}
    for place, stretch in stretches.items():
        stretch.calls[0].mover = stretch.calls[0].mover or mover
        for call in stretch.calls:
            if call.request_key is not None:
                items.append(numbers[place])
                keys.append(call.request_key)
                offsets.append(call.offset)
    positions: list[int] = await connection.fetchval(
        ADVANCE,
        [place[0] for place in stretches],
        [place[1] for place in stretches],
        [stretch.first for stretch in stretches.values()],
        [stretch.end for stretch in stretches.values()],
        [stretch.calls[0].mover for stretch in stretches.values()],
        items,
        keys,
        offsets,
        wait,
    )
    results: dict[AdvanceCall, Any] = {}
    for stretch, position in zip(stretches.values(), positions, strict=True):
        outcome = _OUTCOMES.get(position, ELSEWHERE)
        for call in stretch.calls:
            results[call] = outcome
    return [results.get(call, ELSEWHERE) for call in calls]


async def unread(connection: Connection, calls: Sequence[UnreadCall], _: bool) -> list[Any]:
    """Carries out a batch. Results: Unread or NO_SUBSCRIPTION."""
    results: list[Unread | int] = [NO_SUBSCRIPTION] * len(calls)
    for request, partitions, ids, positions in await connection.fetch(
        UNREAD, [call.subscription_id for call in calls]
    ):
        results[request - 1] = Unread(partitions or [], ids or [], positions or [])
    return results


async def recall(connection: Connection, calls: Sequence[RecallCall], _: bool) -> list[Any]:
    """Carries out a batch. Results: (partition, offset), or None where the key is new. The offset is -1 if
    retention has removed the entry."""
    results: list[tuple[int, int] | None] = [None] * len(calls)
    for request, partition, offset in await connection.fetch(
        RECALL, [call.subscription_id for call in calls], [call.request_key for call in calls]
    ):
        results[request - 1] = (partition, offset)
    return results
