"""AutomaticGrowth: a topic gets one more partition each time its messages per partition pass a threshold.

Every answer to a publish contains the length of a partition, so a node can estimate the size of a topic
without asking the store. If the estimate passes the threshold, the node asks PostgreSQL for the exact number,
and the topic grows if that passes it, too: after a batch, never within one.
"""

import logging
import sys
from dataclasses import dataclass, field

from nuncius.broker import Broker
from nuncius.broker.caller import NODE
from nuncius.broker.errors import BrokerError, StoreError
from nuncius.broker.model import Placed

log = logging.getLogger(__name__)

MOST_TOPICS = 10_000


@dataclass(slots=True)
class _Known:
    ends: dict[int, int] = field(default_factory=dict)  # the next offset of each partition
    messages: int = 0
    enough: int = 0  # up to this number no partition is needed
    is_growing: bool = False


class TopicGrowth:
    def __init__(self, broker: Broker, threshold: int) -> None:
        self._broker = broker
        self._threshold = threshold  # 0: never grow
        self._topics: dict[str, _Known] = {}
        self._signals = broker.signals
        self._catalogue = broker.signals.catalogue

    def is_due(self, topic: str, placed: Placed, count: int) -> bool:
        """Return whether the topic may have to grow, after these entries were placed. The caller must then
        call `grow`; no other call returns True before that has ended."""
        if not self._threshold:
            return False
        if self._catalogue != self._signals.catalogue:  # the topic may be a new one of the same name
            self._catalogue = self._signals.catalogue
            self._topics.clear()
        known = self._topics.get(topic)
        if known is None:
            if len(self._topics) >= MOST_TOPICS:
                self._topics.clear()
            known = self._topics[topic] = _Known(enough=self._threshold)
        if placed.scattered is None:
            self._note(known, placed.partition, placed.offset + count - placed.skipped)
        else:
            for partition, offset in placed.scattered:
                self._note(known, partition, offset + 1)
        if known.messages <= known.enough or known.is_growing:
            return False
        known.is_growing = True
        return True

    def _note(self, known: _Known, partition: int, end: int) -> None:
        more = end - known.ends.get(partition, 0)
        if more > 0:
            known.ends[partition] = end
            known.messages += more

    async def grow(self, topic: str) -> None:
        """Add a partition if there are too many messages. A failure is logged, and the next message tries
        again: the published messages are stored anyway."""
        known = self._topics.get(topic)
        try:
            ends, messages = await self._broker.actors.fullness(topic)
            most = self._broker.limits.max_partitions
            if messages > self._threshold * len(ends) and len(ends) < most:
                await self._broker.topics.grow(topic, len(ends) + 1, caller=NODE)
                ends[len(ends) + 1] = 0
            if known is not None:
                known.ends, known.messages = ends, messages
                known.enough = self._threshold * len(ends) if len(ends) < most else sys.maxsize
        except (BrokerError, StoreError) as error:
            log.warning("a topic did not grow", extra={"topic": topic, "error": str(error)})
        finally:
            if known is not None:
                known.is_growing = False
