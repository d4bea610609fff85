"""Stretches: what a round takes, what a task takes, and what was not found."""

from dataclasses import replace

import pytest

from nuncius.pipeline.catalogue import TopicPartition
from nuncius.pipeline.lake import LakeFile, stretches
from nuncius.pipeline.lake.stretches import LakeStretch, cut, share, within, without


def stretch(start: int, end: int, partition_id: int = 1) -> LakeStretch:
    return LakeStretch(TopicPartition("news", 1, partition_id, partition_id, "", 0, end), start, end)


def file(first: int, end: int, partition_id: int = 1) -> LakeFile:
    return LakeFile("", "news", partition_id, partition_id, first, end, 0, 0)


def ranges(found: list[LakeStretch]) -> list[tuple[int, int, int]]:
    return [(one.partition.partition_id, one.start, one.end) for one in found]


def test_shares() -> None:
    """Rows are shared fairly; what short stretches leave goes to long ones, and nobody gets an empty one."""
    pending = [stretch(10, 110, 1), stretch(0, 3, 2), stretch(5, 55, 3)]
    assert ranges(share(pending, 43)) == [(1, 10, 30), (2, 0, 3), (3, 5, 25)]
    assert ranges(share(pending, 1)) == [(1, 10, 11)]
    assert ranges(share(pending, 1000)) == ranges(pending)


@pytest.mark.parametrize(
    ("workers", "expected"),
    [(1, [(0, 100), (0, 20)]), (2, [(0, 60), (60, 100), (0, 20)]), (99, [(0, 50), (50, 100), (0, 20)])],
)
def test_pieces(workers: int, expected: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """A long stretch is cut so that every worker has something to do, but not into crumbs."""
    monkeypatch.setattr(stretches, "SMALLEST_PIECE", 50)
    pieces = cut([stretch(0, 100), stretch(0, 20, 2)], workers)
    assert [(piece.start, piece.end) for piece in pieces] == expected


def test_what_is_missing() -> None:
    """What is in no file is found, before, between and after them, in every partition."""
    pending = [stretch(10, 30), stretch(0, 5, 2), stretch(0, 5, 3)]
    files = [file(20, 25), file(12, 15), file(15, 18), file(0, 5, 2)]
    assert ranges(without(pending, files)) == [(1, 10, 12), (1, 18, 20), (1, 25, 30), (3, 0, 5)]
    assert without([replace(pending[0], start=12, end=18)], files[1:3]) == []


def test_up_to_a_goal() -> None:
    """What came after the goals were set, in new partitions, too, is left for the next time."""
    pending = [stretch(0, 10), stretch(5, 10, 2), stretch(0, 3, 3)]
    assert ranges(within(pending, {1: 7, 2: 5})) == [(1, 0, 7)]
