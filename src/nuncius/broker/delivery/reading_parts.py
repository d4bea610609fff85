"""The services, the places and the requests of reading for a consumer."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from nuncius.broker.topics.topic import Topic
from nuncius.store.calls.fetching import Entries
from nuncius.store.calls.moving import MoveCall
from nuncius.store.calls.unread import RecallCall, UnreadCall
from nuncius.store.combiner.combiner import Combiner

Done = Callable[[Any], None]
Fetch = Callable[..., Awaitable[Entries | None]]


@dataclass(frozen=True, slots=True)
class PullServices:
    """Services that every reading of a node uses."""

    advance: Callable[[MoveCall], None]
    looking: Combiner[UnreadCall]
    recalling: Combiner[RecallCall]
    find_topic: Callable[[str], Awaitable[Topic]]
    fetch: Fetch
    version: Callable[[int], int]
    start: Callable[[Coroutine[None, None, None]], None]
    account: Callable[[int], None]
    forget: Callable[[int], None]


class Place:
    """A consumer's position in a partition, and the entries read ahead there."""

    __slots__ = ("bodies", "first", "is_fetching", "partition", "partition_id", "position", "size")

    def __init__(self, partition: int, partition_id: int, position: int) -> None:
        self.partition = partition
        self.partition_id = partition_id
        self.position = position
        self.first = 0
        self.bodies: list[bytes] = []
        self.size = 0
        self.is_fetching = False

    @property
    def is_dry(self) -> bool:
        return self.position - self.first >= len(self.bodies)


class PullRequest:
    __slots__ = ("done", "key", "number")

    def __init__(self, done: Done, key: str | None) -> None:
        self.done = done
        self.key = key
        self.number = 0
