"""Is there an order of the operations on one key that explains what everybody saw?

A history is writes of values that are all different, and reads. For each value, its write and the reads of
it belong together; the value was certainly there from the first of their ends to the last of their
beginnings, if those come in that order (a forward zone), and otherwise it may have been there for a moment
anywhere between (a backward zone). The history is linearizable exactly if no read ends before the write of
its value begins, no two forward zones overlap, and no backward zone lies inside a forward one (Gibbons and
Korach, 1997).
"""

import itertools
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
ALWAYS = float("-inf")


@dataclass(frozen=True, slots=True)
class Operation:
    is_write: bool
    value: str | None
    begin: float
    end: float


@dataclass(slots=True)
class History:
    """Operations on one key, by a clock that ticks with every event."""

    operations: list[Operation] = field(default_factory=list)
    _ticks: "itertools.count[int]" = field(default_factory=itertools.count)

    async def read(self, looking: Awaitable[str | None]) -> str | None:
        begin = next(self._ticks)
        value = await looking
        self.operations.append(Operation(False, value, begin, next(self._ticks)))
        return value

    async def write(self, value: str, writing: Awaitable[T]) -> T:
        begin = next(self._ticks)
        result = await writing
        self.operations.append(Operation(True, value, begin, next(self._ticks)))
        return result

    def fault(self) -> str | None:
        """What cannot be explained, or None."""
        clusters: dict[str | None, list[Operation]] = {None: [Operation(True, None, ALWAYS, ALWAYS)]}
        for operation in self.operations:
            clusters.setdefault(operation.value, []).append(operation)
        forward: list[tuple[float, float, str | None]] = []
        backward: list[tuple[float, float, str | None]] = []
        for value, cluster in clusters.items():
            writes = [operation for operation in cluster if operation.is_write]
            if len(writes) != 1:
                return f"{value!r} was written {len(writes)} times"
            if any(operation.end < writes[0].begin for operation in cluster):
                return f"{value!r} was read before it was written"
            first_end = min(operation.end for operation in cluster)
            last_begin = max(operation.begin for operation in cluster)
            if first_end < last_begin:
                forward.append((first_end, last_begin, value))
            else:
                backward.append((last_begin, first_end, value))
        forward.sort(key=lambda zone: zone[:2])
        for (_, end, value), (begin, _, other) in itertools.pairwise(forward):
            if begin < end:
                return f"{value!r} and {other!r} were there at the same time"
        for begin, end, value in backward:
            for first, last, other in forward:
                if first < begin and end < last:
                    return f"{value!r} was written while {other!r} was there before and after"
        return None
