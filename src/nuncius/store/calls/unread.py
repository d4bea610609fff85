"""Looking where consumers have something unread, and what requests with a key got: many calls become one
`unread_many` or one `find_consumed`."""

from collections.abc import Callable, Sequence
from typing import Any

from nuncius.store.calls.moving import NO_SUBSCRIPTION, PER_CALL
from nuncius.store.combiner.combiner import Call
from nuncius.store.driver import Connection

UNREAD = "select request, partitions, partition_ids, positions from nuncius.unread_many($1)"
RECALL = "select request, partition, entry_offset from nuncius.find_consumed($1, $2)"


Unread = list[tuple[int, int, int]]


class ConsumerCall(Call):
    """A look for a consumer: where it has something unread, or what its request with a key got."""

    __slots__ = ("request_key", "subscription_id")

    def __init__(self, done: Callable[[Any], None], subscription_id: int, request_key: str = "") -> None:
        super().__init__(done, subscription_id, None, 1, PER_CALL, True)
        self.subscription_id = subscription_id
        self.request_key = request_key


async def unread(connection: Connection, calls: Sequence[ConsumerCall], _: bool) -> list[Any]:
    """Carry out a batch. Results: NO_SUBSCRIPTION, or the places where the subscription may have something
    unread: (partition, partition id, position)."""
    results: list[Unread | int] = [NO_SUBSCRIPTION] * len(calls)
    for request, partitions, ids, positions in await connection.fetch(
        UNREAD, [call.subscription_id for call in calls]
    ):
        results[request - 1] = list(zip(partitions or (), ids or (), positions or (), strict=True))
    return results


async def recall(connection: Connection, calls: Sequence[ConsumerCall], _: bool) -> list[Any]:
    """Carry out a batch. Results: (partition, offset), or None where the key is new. The offset is -1 if
    retention has removed the entry."""
    results: list[tuple[int, int] | None] = [None] * len(calls)
    for request, partition, offset in await connection.fetch(
        RECALL, [call.subscription_id for call in calls], [call.request_key for call in calls]
    ):
        results[request - 1] = (partition, offset)
    return results
