"""The checker of histories finds what cannot be, and nothing else."""

import pytest

from cluster.storage_history import History, Operation


def history(*operations: tuple[str, str | None, float, float]) -> History:
    return History([Operation(kind == "w", value, begin, end) for kind, value, begin, end in operations])


@pytest.mark.parametrize(
    "fine",
    [
        history(),
        history(("r", None, 0, 1), ("w", "a", 2, 5), ("r", None, 3, 4), ("r", "a", 4.5, 6)),
        history(("w", "a", 0, 10), ("w", "b", 0, 10), ("r", "b", 1, 2), ("r", "a", 3, 4)),
        history(("w", "a", 0, 10), ("r", "a", 1, 2), ("r", "a", 9, 12)),
    ],
)
def test_what_can_be_explained(fine: History) -> None:
    """Operations that overlap may have happened in either order."""
    assert fine.fault() is None


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (history(("w", "a", 0, 1), ("r", None, 2, 3)), "while None was there"),
        (history(("w", "a", 0, 1), ("w", "b", 2, 3), ("r", "a", 4, 5)), "written while"),
        (history(("w", "a", 0, 10), ("r", "a", 1, 2), ("r", None, 3, 4)), "while None was there"),
        (
            history(("w", "a", 0, 9), ("w", "b", 0, 9), ("r", "a", 1, 2), ("r", "b", 3, 4), ("r", "a", 5, 6)),
            "while 'a' was there",
        ),
        (
            history(
                ("w", "a", 0, 9),
                ("w", "b", 0, 9),
                ("r", "a", 1, 2),
                ("r", "b", 1, 3),
                ("r", "a", 5, 6),
                ("r", "b", 5, 6),
            ),
            "same time",
        ),
        (history(("r", "a", 0, 1), ("w", "a", 2, 3)), "before it was written"),
        (history(("r", "a", 0, 1)), "written 0 times"),
        (history(("w", "a", 0, 1), ("w", "a", 2, 3)), "written 2 times"),
    ],
)
def test_what_cannot_be(wrong: History, why: str) -> None:
    """A stale read, a value that comes back, one that nobody wrote."""
    assert why in str(wrong.fault())
