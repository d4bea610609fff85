"""Calls of the array procedures for topics, with the arguments that a test cares about."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nuncius.store.driver import Connection

PUBLISH_MANY = (
    "select bases, skipped from nuncius.publish_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
)


@dataclass(frozen=True)
class Send:
    """Entries for one topic and publisher; `partitions` is one for all, or one an entry."""

    topic: int
    bodies: Sequence[bytes]
    partitions: int | Sequence[int] = 1
    publisher: int | None = None
    count: int | None = None
    layout: int | None = None


class Outcome(NamedTuple):
    bases: list[int]
    skipped: list[int]


async def publish_many(
    connection: Connection, *sends: Send, wait: bool = True, notify: bool = True
) -> Outcome:
    """Publishes sends in one call; a run per partition of each send, in order of partitions."""
    runs: list[tuple[int, int, list[tuple[int, bytes]]]] = []
    for number, send in enumerate(sends, 1):
        chosen = send.partitions
        if isinstance(chosen, int):
            chosen = [chosen] * len(send.bodies)
        numbered = list(enumerate(send.bodies))
        runs.extend(
            (number, partition, [numbered[i] for i, p in enumerate(chosen) if p == partition])
            for partition in sorted(set(chosen))
        )
    row = await connection.fetchrow(
        PUBLISH_MANY,
        [send.topic for send in sends],
        [send.layout for send in sends],
        [send.publisher for send in sends],
        [send.count for send in sends],
        [number for number, _, _ in runs],
        [partition for _, partition, _ in runs],
        [len(entries) for _, _, entries in runs],
        [i for _, _, entries in runs for i, _ in entries],
        None,
        None,
        [body for _, _, entries in runs for _, body in entries],
        wait,
        notify,
    )
    assert row is not None
    return Outcome(row["bases"], row["skipped"])


async def topic(connection: Connection, name: str = "news", partitions: int = 1) -> int:
    """A new topic's id."""
    made: int = await connection.fetchval("select nuncius.create_topic($1, $2)", name, partitions)
    return made


async def publisher(connection: Connection, name: str = "alice") -> int:
    """A publisher's id."""
    rows = await connection.fetch("select * from nuncius.ensure_publishers($1)", [name])
    found: int = rows[0]["publisher_id"]
    return found


async def bodies(connection: Connection, name: str = "news", partition: int = 1) -> list[bytes]:
    """What can be read of a partition; fails if the offsets have a gap."""
    rows = await connection.fetch(
        "select entry_offset, body from nuncius.fetch($1, $2, 0, 1000000)", name, partition
    )
    offsets = [row["entry_offset"] for row in rows]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True
    return [row["body"] for row in rows]
