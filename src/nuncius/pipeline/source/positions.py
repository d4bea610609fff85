"""Where a stream is: what Spark keeps in a checkpoint and shows in a query's progress.

    {"news": {"id": 12, "1": 100, "2": 87}}

For each partition of a topic, the next offset. The id is the topic's: a topic that was deleted and made again
under the same name has another one, and is not taken for the old. Spark compares offsets as text, so the
order of topics and partitions is always the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ID = "id"


@dataclass(frozen=True, slots=True)
class Place:
    """One partition of one topic; its text in messages."""

    topic: str
    topic_id: int
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of topic {self.topic!r}"


Positions = Mapping[Place, int]


def encode(positions: Positions) -> dict[str, dict[str, int]]:
    """As Spark keeps it."""
    encoded: dict[str, dict[str, int]] = {}
    for place in sorted(positions, key=lambda p: (p.topic, p.partition)):
        encoded.setdefault(place.topic, {_ID: place.topic_id})[str(place.partition)] = positions[place]
    return encoded


def decode(encoded: Mapping[str, Any]) -> dict[Place, int]:
    """As we use it."""
    return {
        Place(topic, places[_ID], int(partition)): offset
        for topic, places in encoded.items()
        for partition, offset in places.items()
        if partition != _ID
    }


def share(rows: int, waiting: Mapping[Place, int]) -> dict[Place, int]:
    """How many of so many rows each partition gets, of which so many rows wait.

    Everybody gets the same, and what some do not need goes to the others. Where there is not even a row for
    each, those with most rows waiting come first: none waits for ever.
    """
    given: dict[Place, int] = {}
    # By need: whoever needs less than an equal share of what is left leaves the rest to those after it.
    order = sorted(waiting, key=lambda place: (waiting[place], -place.topic_id, -place.partition))
    for number, place in enumerate(order):
        given[place] = min(waiting[place], rows // (len(order) - number))
        rows -= given[place]
    return given
