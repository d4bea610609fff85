"""Deliveries of a subscription that are not acknowledged yet. No I/O."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Generic, TypeVar

from nuncius.doors.stomp.errors import StompRefusal

P = TypeVar("P")


class Delivery(Generic[P]):
    """A MESSAGE that waits for its ACK. `place` is the message's place in the store."""

    __slots__ = ("ack_id", "number", "place")

    def __init__(self, ack_id: str, number: int, place: P) -> None:
        self.ack_id = ack_id
        self.number = number
        self.place = place


class Unacknowledged(Generic[P]):
    """Deliveries are open until an ACK or a NACK claims them. Those that a transaction claimed are restored
    if it is aborted."""

    def __init__(self, *, cumulative: bool) -> None:
        self.is_cumulative = cumulative
        self.claimed = 0  # deliveries that open transactions have claimed
        self._open: OrderedDict[str, Delivery[P]] = OrderedDict()
        self._number = 0

    def __len__(self) -> int:
        return len(self._open) + self.claimed

    def __contains__(self, ack_id: str) -> bool:
        return ack_id in self._open

    def add(self, ack_id: str, place: P) -> None:
        self._number += 1
        self._open[ack_id] = Delivery(ack_id, self._number, place)

    def claim(self, ack_id: str, *, by_transaction: bool = False) -> list[Delivery[P]]:
        """Claim the delivery of that id and, if cumulative, all before it, in their order."""
        if ack_id not in self._open:
            raise StompRefusal(f"no message {ack_id[:100]!r} waits for an acknowledgement")
        claimed = [] if self.is_cumulative else [self._open.pop(ack_id)]
        while ack_id in self._open:
            claimed.append(self._open.popitem(last=False)[1])
        self.claimed += len(claimed) if by_transaction else 0
        return claimed

    def restore(self, claimed: Iterable[Delivery[P]]) -> None:
        everything = sorted([*self._open.values(), *claimed], key=lambda delivery: delivery.number)
        self._open = OrderedDict((delivery.ack_id, delivery) for delivery in everything)

    def clear(self) -> list[P]:
        """Forget all open deliveries. Return their places."""
        places = [delivery.place for delivery in self._open.values()]
        self._open.clear()
        return places
