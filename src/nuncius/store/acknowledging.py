"""Acknowledging: what subscribers say of entries, and what is noted before they get them."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec

from nuncius.store.combiner import Call
from nuncius.store.driver import Connection

DELIVER = "select nuncius.deliver_many($1, $2, $3)"
ACKNOWLEDGE = "select nuncius.acknowledge_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"


class Spot(msgspec.Struct, frozen=True, gc=False):
    """An offset in a partition, as a subscription sees it."""

    subscription_id: int
    partition_id: int
    offset: int


class Acknowledgement(msgspec.Struct, frozen=True, gc=False):
    """Positions that are confirmed; entries that failed, and why; entries taken that had failed before."""

    confirmed: Sequence[Spot] = ()
    failed: Sequence[Spot] = ()
    taken: Sequence[Spot] = ()
    reason: str = ""


class DeliverCall(Call):
    """Entries below these offsets are about to be handed over."""

    __slots__ = ("spot",)

    def __init__(self, done: Callable[[Any], None], caller: Hashable, spot: Spot) -> None:
        super().__init__(done, caller, None, 1, 100, True)
        self.spot = spot


class AcknowledgeCall(Call):
    __slots__ = ("said",)

    def __init__(self, done: Callable[[Any], None], caller: Hashable, said: Acknowledgement) -> None:
        rows = len(said.confirmed) + len(said.failed) + len(said.taken)
        super().__init__(done, caller, None, rows, 100 * rows, not said.failed)
        self.said = said


async def deliver(connection: Connection, calls: Sequence[DeliverCall], _: bool) -> list[Any]:
    """Carries out a batch. Results: None."""
    await connection.fetchval(DELIVER, *_columns([call.spot for call in calls]))
    return [None] * len(calls)


class Acknowledging:
    def __init__(self, retry_delay: float, max_attempts: int) -> None:
        self._retry = (retry_delay, max_attempts)

    async def acknowledge(
        self, connection: Connection, calls: Sequence[AcknowledgeCall], _: bool
    ) -> list[Any]:
        """Carries out a batch. Results: the attempts of each entry that failed, negative if given up."""
        said = [call.said for call in calls]
        attempts = await connection.fetchval(
            ACKNOWLEDGE,
            *_columns([spot for each in said for spot in each.confirmed]),
            *_columns([spot for each in said for spot in each.failed]),
            [each.reason for each in said for _ in each.failed],
            *_columns([spot for each in said for spot in each.taken]),
            *self._retry,
        )
        results, end = [], 0
        for each in said:
            start, end = end, end + len(each.failed)
            results.append(attempts[start:end])
        return results


def _columns(spots: Sequence[Spot]) -> tuple[list[int], list[int], list[int]]:
    return (
        [spot.subscription_id for spot in spots],
        [spot.partition_id for spot in spots],
        [spot.offset for spot in spots],
    )
