"""What a subscriber was given and has not acknowledged yet. No I/O: this is bookkeeping."""

from collections.abc import Iterable
from dataclasses import dataclass

from nuncius.broker.errors import InvalidInput

Place = tuple[int, int]  # partition, offset


@dataclass(frozen=True, slots=True)
class Given:
    """An entry that was handed over: in which order, and how often it had failed before."""

    number: int
    attempts: int


class Outstanding:
    """Knows for each partition how far everything is acknowledged: the first entry that is not holds the
    position back, whatever is acknowledged after it."""

    def __init__(self) -> None:
        self._given: dict[Place, Given] = {}  # in the order of handing over
        self._open: dict[
            int, dict[int, None]
        ] = {}  # partition: offsets that hold its position back, ascending
        self._pushed: dict[int, int] = {}  # partition: the offset after the last one given
        self._number = 0

    def __len__(self) -> int:
        return len(self._given)

    def give(self, partition: int, offset: int, count: int, attempts: int = 0) -> None:
        """Entries from an offset on are handed over. Those that failed before come singly, and hold nothing
        back: the position has passed them."""
        offsets = range(offset, offset + count)
        for each in offsets:
            self._number += 1
            self._given[partition, each] = Given(self._number, attempts)
        if not attempts:
            self._open.setdefault(partition, {}).update(dict.fromkeys(offsets))
            self._pushed[partition] = offset + count

    def take(self, partition: int, offset: int, *, cumulative: bool) -> dict[Place, Given]:
        """Removes this entry and, if cumulative, all that were given before it."""
        place = (partition, offset)
        if place not in self._given:
            raise InvalidInput("this entry is not waiting for an acknowledgement")
        taken = {}
        while place not in taken:
            each = next(iter(self._given)) if cumulative else place
            taken[each] = self._given.pop(each)
            if not taken[each].attempts:
                del self._open[each[0]][each[1]]
        return taken

    def restore(self, taken: dict[Place, Given]) -> None:
        """These are not acknowledged after all."""
        everything = {**self._given, **taken}
        self._given = dict(sorted(everything.items(), key=lambda item: item[1].number))
        for partition in {each for each, _ in taken}:
            offsets = [o for (p, o), given in self._given.items() if p == partition and not given.attempts]
            self._open[partition] = dict.fromkeys(sorted(offsets))

    def positions(self, partitions: Iterable[int]) -> dict[int, int]:
        """How far these partitions are acknowledged without a gap."""
        return {
            each: next(iter(self._open[each]), self._pushed[each])
            for each in partitions
            if each in self._open
        }
