"""What a subscriber was given and has not acknowledged yet, against a plain model."""

from collections.abc import Mapping

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nuncius.broker.delivery.push.outstanding import Given, Outstanding, Place
from nuncius.broker.errors import InvalidInput

partitions = st.integers(1, 2)


class OutstandingMachine(RuleBasedStateMachine):
    """The model: every entry has one state, and a position is the first entry that is not stored."""

    @initialize()
    def begin(self) -> None:
        self.real = Outstanding()
        self.order: list[Place] = []  # open, in the order of handing over
        self.stored: dict[int, list[bool]] = {1: [], 2: []}  # partition: of each offset
        self.said: list[Mapping[Place, Given]] = []  # on its way to the store
        self.failed: list[Place] = []  # and the store knows it
        self.again: set[Place] = set()  # handed over again

    def position(self, partition: int, also: Mapping[Place, Given] | None = None) -> int:
        for offset, stored in enumerate(self.stored[partition]):
            if not stored and (also is None or (partition, offset) not in also):
                return offset
        return len(self.stored[partition])

    @rule(partition=partitions, count=st.integers(1, 4))
    def give(self, partition: int, count: int) -> None:
        first = len(self.stored[partition])
        self.real.give(partition, first, count)
        self.stored[partition] += [False] * count
        self.order += [(partition, first + n) for n in range(count)]

    @precondition(lambda self: self.failed)
    @rule()
    def give_again(self) -> None:
        place = self.failed.pop(0)
        self.real.give(*place, 1, 3)
        self.order.append(place)
        self.again.add(place)

    @precondition(lambda self: self.order)
    @rule(data=st.data(), cumulative=st.booleans())
    def say(self, data: st.DataObject, cumulative: bool) -> None:
        at = data.draw(st.integers(0, len(self.order) - 1))
        taken = self.real.take(*self.order[at], cumulative=cumulative)
        expected = self.order[: at + 1] if cumulative else [self.order[at]]
        assert list(taken) == expected
        assert [given.attempts for given in taken.values()] == [3 * (p in self.again) for p in expected]
        self.order = [place for place in self.order if place not in expected]
        self.said.append(taken)

    @precondition(lambda self: self.said)
    @rule(data=st.data(), failed=st.booleans())
    def store(self, data: st.DataObject, failed: bool) -> None:
        """Several things that were said are stored together."""
        some = data.draw(st.lists(st.sampled_from(range(len(self.said))), min_size=1, unique=True))
        together = [self.said[n] for n in some]
        everything = {place: given for each in together for place, given in each.items()}
        for partition, position in self.real.reached(together).items():
            assert position == self.position(partition, everything)
        positions = self.real.settle(together)
        for partition, offset in everything:
            self.stored[partition][offset] = True
        for partition, position in positions.items():
            assert position == self.position(partition)
        self.said = [each for n, each in enumerate(self.said) if n not in some]
        self.again -= set(everything)
        if failed:
            self.failed += everything

    @precondition(lambda self: self.said)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """Something that was said could not be stored; what is open keeps the order of handing over."""
        taken = self.said.pop(data.draw(st.integers(0, len(self.said) - 1)))
        self.real.restore(taken)
        numbers = {**self.real._open}  # noqa: SLF001
        self.order = sorted([*self.order, *taken], key=lambda place: numbers[place].number)

    @rule()
    def leave(self) -> None:
        """What is left behind is what the position would wait for although it has passed later ones."""
        left = self.real.left_behind()
        for place in self.order:
            partition, offset = place
            later = self.stored[partition][offset + 1 :]
            assert (place in left) == (place in self.again or any(later))
        self.order = [place for place in self.order if place not in left]
        if left:
            self.said.append(left)

    @invariant()
    def as_many_are_open(self) -> None:
        assert len(self.real) == len(self.order)


TestOutstanding = OutstandingMachine.TestCase
TestOutstanding.settings = settings(max_examples=100, stateful_step_count=40, derandomize=True, deadline=None)


def test_what_is_not_open() -> None:
    """Nothing can be said twice of an entry, nor of one that was never given."""
    outstanding = Outstanding()
    outstanding.give(1, 0, 2)
    outstanding.take(1, 0, cumulative=False)
    for place in ((1, 0), (1, 2), (2, 0)):
        with pytest.raises(InvalidInput, match="not waiting"):
            outstanding.take(*place, cumulative=True)


def test_what_is_on_its_way_holds_the_position() -> None:
    """A position does not pass an entry of which the store has not heard: it might never hear of it."""
    outstanding = Outstanding()
    outstanding.give(1, 0, 3)
    first = outstanding.take(1, 0, cumulative=False)
    second = outstanding.take(1, 1, cumulative=False)
    assert outstanding.reached([second]) == {1: 0}
    assert outstanding.settle([second]) == {1: 0}
    outstanding.restore(first)
    again = outstanding.take(1, 0, cumulative=False)
    assert outstanding.reached([again]) == {1: 2}
    assert outstanding.settle([again]) == {1: 2}


def test_many_at_once() -> None:
    """A hundred thousand entries are acknowledged in one stroke, or one by one, without trouble."""
    outstanding = Outstanding()
    outstanding.give(1, 0, 100_000)
    taken = outstanding.take(1, 49_999, cumulative=True)
    assert outstanding.settle([taken]) == {1: 50_000}
    for offset in range(50_000, 100_000):
        taken = outstanding.take(1, offset, cumulative=False)
        outstanding.reached([taken])
        outstanding.settle([taken])
    assert len(outstanding) == 0
