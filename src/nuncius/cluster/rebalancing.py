"""Spread partitions again some time after brokers have come or gone."""

import asyncio
import logging
from collections.abc import Sequence

from nuncius.cluster.members import ClusterMember
from nuncius.cluster.placement import Placement

log = logging.getLogger(__name__)


class Rebalancing:
    """Rebalance once after the brokers have not changed for `seconds`; 0 means never."""

    def __init__(self, placement: Placement, seconds: float) -> None:
        self._placement = placement
        self._seconds = seconds
        self._brokers: frozenset[int | None] = frozenset()
        self._due: float | None = None

    async def look(self, members: Sequence[ClusterMember]) -> None:
        """Rebalance if it is time. Every node tries; the first one moves partitions."""
        now = asyncio.get_running_loop().time()
        brokers = frozenset(member.broker_id for member in members if member.may_be_given_more)
        if brokers != self._brokers:
            self._brokers = brokers
            self._due = now + self._seconds
        elif self._seconds and self._due is not None and self._due <= now:
            self._due = None
            moved = await self._placement.rebalance()
            if moved:
                log.info("partitions were spread over the brokers", extra={"partitions": moved})
