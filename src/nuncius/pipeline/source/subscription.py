"""A stream as a subscriber: its lag is visible like any other, and it blocks retention on request.

The checkpoint decides what was read; the subscription follows it. Spark reports a batch as done only while it
plans the next one, and never reports the last one. But everything before the start of a batch is done, so it
is confirmed, too. Positions never go back: a stream that begins again with another checkpoint is behind its
own subscription, which is logged.
"""

import logging
from collections.abc import Iterable

from nuncius.pipeline.catalogue import Stores, TopicPartition
from nuncius.pipeline.source.options import Edge
from nuncius.pipeline.source.positions import Positions
from nuncius.store.queries import procedure

_log = logging.getLogger(__name__)


class StreamSubscription:
    def __init__(self, stores: Stores, name: str, *, hold_retention: bool, is_job: bool = False) -> None:
        """Follow topics under a name, or under the name reserved for the job of that name."""
        self._stores = stores
        self._name = name
        self._hold_retention = hold_retention
        self._is_job = is_job
        self._ids: dict[int, int] = {}  # by topic
        self._confirmed: dict[int, int] = {}  # by partition

    def follow(self, topic_ids: Iterable[int], start: Edge) -> None:
        """Subscribe to topics that are not yet subscribed."""
        new = sorted(set(topic_ids) - set(self._ids))
        if new:
            rows = self._stores.rows(
                self._stores.main,
                procedure("follow", 5),
                new,
                self._name,
                start,
                self._hold_retention,
                self._is_job,
            )
            self._ids |= {row["topic_id"]: row["subscription_id"] for row in rows}

    def confirm(self, done: Iterable[tuple[TopicPartition, int]]) -> None:
        """Confirm the entries below these positions, for positions that have changed."""
        news = [
            (partition, position)
            for partition, position in done
            if partition.topic_id in self._ids and self._confirmed.get(partition.partition_id) != position
        ]
        if not news:
            return
        self._stores.rows(
            self._stores.main,
            procedure("confirm_many", 3),
            [self._ids[partition.topic_id] for partition, _ in news],
            [partition.partition_id for partition, _ in news],
            [position for _, position in news],
        )
        self._confirmed |= {partition.partition_id: position for partition, position in news}

    def warn_if_ahead(self, start: Positions) -> None:
        """Log a warning where the subscription has confirmed more than the start of the stream."""
        rows = self._stores.rows(self._stores.main, procedure("positions_of", 1), list(self._ids.values()))
        topics = {subscription: topic for topic, subscription in self._ids.items()}
        at = {(topics[row["subscription_id"]], row["partition"]): row["position"] for row in rows}
        for place, position in start.items():
            confirmed = at.get((place.topic_id, place.partition), 0)
            if confirmed > position:
                _log.warning(
                    "subscription %r has confirmed %s up to offset %d, and this stream begins at %d: "
                    "its lag is shown too small, and retention is not held, until it gets there. "
                    "A new subscription has another name",
                    self._name,
                    place,
                    confirmed,
                    position,
                )
