"""Reading topics: many calls become one `fetch_many`."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import msgspec

from nuncius.store.combiner.combiner import Call
from nuncius.store.driver import Connection

SQL = "select request, first_offset, times, keys, headers, bodies from nuncius.fetch_many($1, $2, $3, $4)"

MAX_FETCH_BYTES = 1 << 20
GONE, ELSEWHERE = -2, -3


class FetchedEntries(msgspec.Struct, frozen=True, gc=False):
    """Consecutive entries of a partition, column by column. `keys` and `headers` are None if no entry has
    any; times are microseconds since 1970, headers are JSON text."""

    first_offset: int
    times: list[int]
    keys: list[str | None] | None
    headers: list[str | None] | None
    bodies: list[bytes]

    @property
    def next_offset(self) -> int:
        return self.first_offset + len(self.bodies)

    def part(self, start: int, end: int) -> "FetchedEntries":
        """Return the entries from index `start` to before `end`."""
        keys, headers = self.keys, self.headers
        return FetchedEntries(
            self.first_offset + start,
            self.times[start:end],
            keys and keys[start:end],
            headers and headers[start:end],
            self.bodies[start:end],
        )


class FetchCall(Call):
    __slots__ = ("limit", "partition_id", "position")

    def __init__(
        self,
        done: Callable[[Any], None],
        caller: Hashable,
        partition_id: int,
        position: int,
        limit: int,
    ) -> None:
        super().__init__(done, caller, None, limit, MAX_FETCH_BYTES // 8, True)
        self.partition_id = partition_id
        self.position = position
        self.limit = limit


async def fetch(connection: Connection, calls: Sequence[FetchCall], _: bool) -> list[Any]:
    """Carry out a batch. Results: Entries, None if there is nothing yet, GONE, or ELSEWHERE for entries in
    another store."""
    rows = await connection.fetch(
        SQL,
        [call.partition_id for call in calls],
        [call.position for call in calls],
        [call.limit for call in calls],
        MAX_FETCH_BYTES,
    )
    results: list[FetchedEntries | int | None] = [None] * len(calls)
    for request, first, times, keys, headers, bodies in rows:
        results[request - 1] = first if first < 0 else FetchedEntries(first, times, keys, headers, bodies)
    return results
