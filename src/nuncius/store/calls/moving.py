"""Moving positions: many calls become one `confirm_many` or one `advance_many`."""

import secrets
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from nuncius.store.combiner.combiner import Call, Detour
from nuncius.store.driver import Connection

CONFIRM = "select nuncius.confirm_many($1, $2, $3)"
ADVANCE = "select nuncius.advance_many($1, $2, $3, $4, $5, $6, $7, $8, $9)"
SEEK = "select nuncius.seek($1, $2, $3)"
POSITIONS = "select partition, position from nuncius.positions_of($1)"
# By partition: where the first entry is, where the next will be, and where the first of a time or later is.
ENDS = (
    "select partition, first_offset, nuncius.next_offset(partition_id),"
    " case when $2::timestamptz is not null then nuncius.offset_at(partition_id, $2) end"
    " from nuncius.partitions where topic_id = $1 order by partition"
)

MOVED, ELSEWHERE, NO_SUBSCRIPTION, NOT_PUBLISHED = 0, 1, -2, -7
_OUTCOMES: dict[int, int | Detour] = {-1: MOVED, -2: NO_SUBSCRIPTION, -3: Detour.BUSY}
PER_CALL = 200  # bytes of memory a call costs


class MoveCall(Call):
    """Move a subscription forward to `to`; with `advance`, only if it stands at the entry before."""

    __slots__ = ("mover", "partition_id", "request_key", "subscription_id", "to")

    def __init__(
        self,
        done: Callable[[Any], None],
        caller: Hashable,
        subscription_id: int,
        partition_id: int,
        to: int,
        request_key: str | None = None,
    ) -> None:
        # Made for every message: the parent's fields are set here rather than by a second call.
        self.done = done
        self.caller = caller
        self.key = subscription_id
        self.rows = 1
        self.size = PER_CALL
        self.repeatable = True
        self.subscription_id = subscription_id
        self.partition_id = partition_id
        self.to = to
        self.request_key = request_key
        self.mover = 0  # identifies the move when it is sent again; 0: it was not sent yet


async def confirm(connection: Connection, calls: Sequence[MoveCall], _: bool) -> Sequence[Any]:
    """Move positions forward. Results: MOVED, NO_SUBSCRIPTION or NOT_PUBLISHED."""
    codes: list[int] = await connection.fetchval(
        CONFIRM,
        [call.subscription_id for call in calls],
        [call.partition_id for call in calls],
        [call.to for call in calls],
    )
    return codes


async def advance(connection: Connection, calls: Sequence[MoveCall], wait: bool) -> list[Any]:
    """Move positions past one entry each. Results: MOVED, ELSEWHERE (the subscription does not stand at that
    entry), NO_SUBSCRIPTION or a Detour."""
    stretches: dict[tuple[int, int], list[MoveCall]] = {}  # calls for consecutive entries of a partition
    items, keys, offsets = [], [], []
    for call in calls:
        stretch = stretches.setdefault((call.subscription_id, call.partition_id), [])
        if not stretch or call.to == stretch[-1].to + 1:
            stretch.append(call)  # else the caller is told that the subscription stands elsewhere
    mover = secrets.randbits(63)
    for n, stretch in enumerate(stretches.values(), 1):
        stretch[0].mover = stretch[0].mover or mover
        for call in stretch:
            if call.request_key is not None:
                items.append(n)
                keys.append(call.request_key)
                offsets.append(call.to - 1)
    positions: list[int] = await connection.fetchval(
        ADVANCE,
        [place[0] for place in stretches],
        [place[1] for place in stretches],
        [stretch[0].to - 1 for stretch in stretches.values()],
        [stretch[-1].to for stretch in stretches.values()],
        [stretch[0].mover for stretch in stretches.values()],
        items,
        keys,
        offsets,
        wait,
    )
    results: dict[MoveCall, Any] = {}
    for stretch, position in zip(stretches.values(), positions, strict=True):
        outcome = _OUTCOMES.get(position, ELSEWHERE)
        for call in stretch:
            results[call] = outcome
    return [results.get(call, ELSEWHERE) for call in calls]
