"""Telling the store what became of leases, until it has heard it.

A node that is alive holds its leases. So where the store cannot be reached at the moment when a connection
ends, its messages would wait for the end of the node; they are given up as soon as the store is back instead.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from nuncius.broker import Broker

AGAIN_SECONDS = 1.0


class Returning:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._is_over = False

    def close(self) -> None:
        """The node ends, and its leases end with it."""
        self._is_over = True

    def settle(self, leases: Sequence[int]) -> None:
        if leases:
            self._broker.leases.settle_soon(leases, partial(self._check, partial(self.settle, leases)))

    def release(self, leases: Sequence[int], reason: str | None) -> None:
        if leases:
            again = partial(self.release, leases, reason)
            self._broker.leases.release_soon(leases, partial(self._check, again), reason=reason)

    def _check(self, again: Any, result: Any) -> None:
        if isinstance(result, Exception) and not self._is_over:
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._try_again, again)

    def _try_again(self, again: Any) -> None:
        if not self._is_over:
            again()
