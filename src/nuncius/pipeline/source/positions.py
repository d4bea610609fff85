"""The positions of a stream, as Spark keeps them in a checkpoint and shows them in a query's progress.

    {"news": {"id": 12, "1": 100, "2": 87}}

For each partition of a topic, the next offset. The id is the topic's: a topic that was deleted and created
again under the same name has another id, and is not mistaken for the old one. Spark compares offsets as text,
so the order of topics and partitions is always the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ID = "id"


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """One partition of one topic. Its text is used in messages."""

    topic: str
    topic_id: int
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of topic {self.topic!r}"


Positions = Mapping[PartitionKey, int]


def encode(positions: Positions) -> dict[str, dict[str, int]]:
    """Encode positions for Spark."""
    encoded: dict[str, dict[str, int]] = {}
    for place in sorted(positions, key=lambda p: (p.topic, p.partition)):
        encoded.setdefault(place.topic, {_ID: place.topic_id})[str(place.partition)] = positions[place]
    return encoded


def decode(encoded: Mapping[str, Any]) -> dict[PartitionKey, int]:
    """Decode positions from Spark."""
    return {
        PartitionKey(topic, places[_ID], int(partition)): offset
        for topic, places in encoded.items()
        for partition, offset in places.items()
        if partition != _ID
    }


def share(rows: int, waiting: Mapping[PartitionKey, int]) -> dict[PartitionKey, int]:
    """Divide a number of rows among partitions with waiting rows.

    Partitions get equal shares, and the unused part of a share goes to the others. If there are fewer rows
    than partitions, those with the most waiting rows come first, so none starves.
    """
    given: dict[PartitionKey, int] = {}
    # By need: a partition that needs less than an equal share leaves the rest to the following ones.
    order = sorted(waiting, key=lambda place: (waiting[place], -place.topic_id, -place.partition))
    for number, place in enumerate(order):
        given[place] = min(waiting[place], rows // (len(order) - number))
        rows -= given[place]
    return given
