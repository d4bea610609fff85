"""A queue, and its depth and age."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Queue:
    queue_id: int
    name: str


@dataclass(frozen=True, slots=True)
class QueueInfo:
    queue_id: int
    name: str
    depth: int
    oldest: int | None  # arrival of the oldest message, in microseconds since 1970
