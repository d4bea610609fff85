"""Confirming: many calls become one `confirm_many`."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from nuncius.store.combiner.combiner import Call
from nuncius.store.driver import Connection

SQL = "select nuncius.confirm_many($1, $2, $3)"

CONFIRMED, NO_SUBSCRIPTION, NOT_PUBLISHED = 0, -2, -7


class ConfirmCall(Call):
    __slots__ = ("partition_id", "position", "subscription_id")

    def __init__(
        self,
        done: Callable[[Any], None],
        caller: Hashable,
        subscription_id: int,
        partition_id: int,
        position: int,
    ) -> None:
        super().__init__(done, caller, None, 1, 100, True)
        self.subscription_id = subscription_id
        self.partition_id = partition_id
        self.position = position


async def confirm(connection: Connection, calls: Sequence[ConfirmCall], _: bool) -> Sequence[Any]:
    """Carries out a batch. Results: CONFIRMED, NO_SUBSCRIPTION or NOT_PUBLISHED."""
    codes: list[int] = await connection.fetchval(
        SQL,
        [call.subscription_id for call in calls],
        [call.partition_id for call in calls],
        [call.position for call in calls],
    )
    return codes
