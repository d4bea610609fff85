"""The line in which readers of a queue wait."""

from collections.abc import Callable

import pytest

from nuncius.broker.queues.waiter import Waiter, WaitingLine
from nuncius.store.calls.putting import Letter


@pytest.fixture
def stand(line: WaitingLine) -> Callable[..., Waiter]:
    """Adds a reader to the line."""

    def add(receiver: int, context: int = 0) -> Waiter:
        waiter = Waiter(
            1, receiver, 0, context, 1, 1, 0.0, lambda _: None, None, leased=False, is_stalled=lambda: False
        )
        line.add(waiter)
        return waiter

    return add


@pytest.fixture
def line() -> WaitingLine:
    return WaitingLine()


def test_what_is_for_one_receiver_concerns_nobody_else(
    line: WaitingLine, stand: Callable[..., Waiter]
) -> None:
    """However many wait, only those are looked at whom a message may fit, in order of arrival."""
    _, first, _, answered, second = stand(7), stand(8), stand(0), stand(8, context=3), stand(8)
    assert list(line.candidates(Letter(b"", receiver=8))) == [first, answered, second]
    assert list(line.candidates(Letter(b"", receiver=9))) == []


def test_what_is_for_anyone_concerns_all_but_who_waits_for_an_answer(
    line: WaitingLine, stand: Callable[..., Waiter]
) -> None:
    """An answer is for the one who asked, so who waits for one gets nothing that is for anyone."""
    first, _, second = stand(7), stand(8, context=3), stand(0)
    assert list(line.candidates(Letter(b""))) == [first, second]


def test_who_leaves_the_line_is_forgotten(line: WaitingLine, stand: Callable[..., Waiter]) -> None:
    """Nothing is kept of readers who have gone."""
    waiters = [stand(7), stand(7, context=3), stand(0)]
    assert list(line) == waiters
    for waiter in waiters:
        line.remove(waiter)
    assert not line
    assert list(line.candidates(Letter(b"", receiver=7))) == list(line.candidates(Letter(b""))) == []
