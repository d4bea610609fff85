"""Entries that a subscriber got and has not acknowledged. Bookkeeping without I/O."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nuncius.broker.errors import InvalidInput

Place = tuple[int, int]  # partition, offset


@dataclass(frozen=True, slots=True)
class Given:
    """An entry that was pushed: its number in the order of pushing, and its failed attempts before."""

    number: int
    attempts: int


class _HeldLine:
    """The entries of a partition, in order, from the first one that holds its position back."""

    __slots__ = ("end", "held", "passed")

    def __init__(self) -> None:
        self.held: deque[int] = deque()
        self.passed: set[int] = set()  # those in `held` that are acknowledged and wait for earlier ones
        self.end = 0  # the offset after the last one pushed


class Outstanding:
    """Open entries of a subscription. An entry is open until the subscriber acknowledges or rejects it
    (`take`). It holds its partition's position back until that is stored (`settle`): if storing fails, the
    entry is open again (`restore`)."""

    def __init__(self) -> None:
        self._open: dict[Place, Given] = {}  # in the order of pushing
        self._lines: dict[int, _HeldLine] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._open)

    def give(self, partition: int, offset: int, count: int, attempts: int = 0) -> None:
        """Add entries that are pushed, from an offset on. Redelivered ones come singly and hold nothing back:
        the position has passed them."""
        offsets = range(offset, offset + count)
        for each in offsets:
            self._number += 1
            self._open[partition, each] = Given(self._number, attempts)
        if not attempts:
            line = self._lines.setdefault(partition, _HeldLine())
            line.held.extend(offsets)
            line.end = offset + count

    def take(self, partition: int, offset: int, *, cumulative: bool) -> dict[Place, Given]:
        """Close this entry and, if cumulative, all that were pushed before it. Return the closed ones."""
        place = (partition, offset)
        if place not in self._open:
            raise InvalidInput("this entry is not waiting for an acknowledgement")
        if not cumulative:
            return {place: self._open.pop(place)}
        taken = {}
        for each, given in self._open.items():
            taken[each] = given
            if each == place:
                break
        for each in taken:
            del self._open[each]
        return taken

    def restore(self, taken: Mapping[Place, Given]) -> None:
        """Open entries again whose acknowledgement was not stored."""
        everything = {**self._open, **taken}
        self._open = dict(sorted(everything.items(), key=lambda item: item[1].number))

    def reached(self, entries: Iterable[Mapping[Place, Given]]) -> dict[int, int]:
        """Return the positions to which partitions are acknowledged without a gap once these entries are."""
        now: dict[int, set[int]] = {}
        for some in entries:
            for partition, offset in some:
                now.setdefault(partition, set()).add(offset)
        return {
            partition: next(
                (each for each in line.held if each not in offsets and each not in line.passed), line.end
            )
            for partition, offsets in now.items()
            if (line := self._lines.get(partition)) is not None
        }

    def settle(self, entries: Iterable[Mapping[Place, Given]]) -> dict[int, int]:
        """Note that the acknowledgements are stored. Return the positions of their partitions."""
        changed = set()
        for some in entries:
            for (partition, offset), given in some.items():
                if not given.attempts:
                    self._lines[partition].passed.add(offset)
                    changed.add(partition)
        return {partition: self._advance(self._lines[partition]) for partition in changed}

    def left_behind(self) -> dict[Place, Given]:
        """Close and return the open entries before an acknowledged one, and the redelivered ones."""
        last = {partition: max(line.passed, default=-1) for partition, line in self._lines.items()}
        return self._take_all(
            [place for place, given in self._open.items() if given.attempts or place[1] < last[place[0]]]
        )

    def first_below(self, ends: Mapping[int, int]) -> dict[Place, Given]:
        """Close and return the first open entry of each partition, if its offset is below these."""
        firsts: dict[int, int] = {}
        for partition, offset in self._open:
            firsts[partition] = min(offset, firsts.get(partition, offset))
        return self._take_all([place for place in firsts.items() if place[1] < ends.get(place[0], 0)])

    def _take_all(self, places: Iterable[Place]) -> dict[Place, Given]:
        return {place: self._open.pop(place) for place in places}

    @staticmethod
    def _advance(line: _HeldLine) -> int:
        held, passed = line.held, line.passed
        while held and held[0] in passed:
            passed.remove(held.popleft())
        return held[0] if held else line.end
