"""Leases of one connection: messages that were delivered to it, and neither settled nor released.

A lease lasts as long as its connection. When the connection ends, for whatever reason, its messages are
redelivered.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from nuncius.broker.errors import InvalidInput, NotHeld
from nuncius.broker.model import Leased
from nuncius.wire import packets

if TYPE_CHECKING:
    from nuncius.doors.native.session import NativeSession as Session

LOST = "the connection was lost"


class Held:
    def __init__(self, session: "Session") -> None:
        self._session = session
        self._leases = session.broker.leases
        self._most = session.broker.limits.max_batch
        self._ids: set[int] = set()
        self._expected = 0  # messages that the requests under way may bring
        self._is_over = False

    def expect(self, limit: int) -> None:
        """Count a request for up to `limit` messages. Refuse it if the connection could hold too many."""
        under_way = len(self._ids) + self._expected
        if not 1 <= limit <= self._most - under_way:
            raise InvalidInput(
                f"lease at least 1 message, and have at most {self._most} in hand; {under_way} are, or are"
                " asked for"
            )
        self._expected += limit

    def add(self, limit: int, leased: Sequence[Leased]) -> None:
        """Record the leases that a request for up to `limit` messages brought."""
        self._expected -= limit
        self._ids.update(one.lease_id for one in leased)

    def settle(self, packet: packets.Settle, cost: int) -> None:
        ids = self._claim(packet.leases)
        done = partial(self._done, packet.request, cost, ids)
        self._leases.settle_soon(ids, done, caller=self._session.caller)

    def release(self, packet: packets.Release, cost: int) -> None:
        ids = self._claim(packet.leases)
        done = partial(self._done, packet.request, cost, ids)
        self._leases.release_soon(ids, done, reason=packet.reason, caller=self._session.caller)

    def _claim(self, ids: Sequence[int]) -> list[int]:
        """Remove leases from the held ones, so that they cannot be settled or released a second time."""
        if not ids:
            raise InvalidInput("name at least one lease")
        claimed = set(ids)
        if not claimed <= self._ids:
            first = next(each for each in ids if each not in self._ids)
            raise NotHeld(
                f"this connection does not hold lease {first} (any more); nothing was changed. Unless it was"
                " settled before, the message comes again"
            )
        self._ids -= claimed
        return list(claimed)

    def _done(self, request: int, cost: int, ids: Sequence[int], result: Any) -> None:
        if not isinstance(result, Exception):
            self._session.reply(cost, packets.Done(request))
            return
        if self._is_over:
            self._leases.give_up(ids, reason=LOST, caller=self._session.caller)
        else:
            self._ids.update(ids)
        self._session.fail(request, cost, result)

    def lost(self) -> None:
        """Return all messages to their queues: the connection has ended."""
        self._is_over = True
        if self._ids:
            self._leases.give_up(list(self._ids), reason=LOST, caller=self._session.caller)
            self._ids.clear()
