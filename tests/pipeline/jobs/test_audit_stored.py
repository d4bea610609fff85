"""The audit of what is stored: every planted fault is found, and nothing else."""

import pytest
from pyspark.sql import SparkSession

from nuncius.pipeline.jobs.auditing import findings as audit_findings
from nuncius.pipeline.jobs.auditing import stored
from nuncius.pipeline.jobs.auditing.findings import holes
from pipeline.auditing import Frames, delivered, event, said


@pytest.fixture
def frames(spark: SparkSession) -> Frames:
    return Frames(spark)


def test_holes_are_found_within_and_between_chunks(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing numbers are found wherever they lie: in a chunk, over its end, and over chunks without any."""
    monkeypatch.setattr(audit_findings, "CHUNK", 10)
    numbers = [-1, 0, 1, 4, 8, 9, 10, 12, 29, 29, 31]
    frame = spark.createDataFrame([("a", n) for n in numbers] + [("b", 5)], "key string, n bigint")
    found = {(row.key, row.first, row.last) for row in holes(frame, ["key"], "n").collect()}
    assert found == {("a", 2, 3), ("a", 5, 7), ("a", 11, 11), ("a", 13, 28), ("a", 30, 30)}


def test_a_finding_has_a_few_examples(frames: Frames) -> None:
    """However many entries are concerned, a finding counts them all and shows the first few."""
    doubled = frames.entries(*range(1, 21)).unionAll(frames.entries(*range(1, 21)))
    ((_, _, _, count, examples),) = said(stored.duplicate_offsets(doubled))
    assert count == 20
    assert examples == [f"offset {n} is there 2 times" for n in range(audit_findings.EXAMPLES)]


def test_a_gap(frames: Frames) -> None:
    """Offsets are missing in the middle, at the start and at the end of what must be there."""
    entries = frames.stored({"offset": n} for n in (0, 1, 4, 5, 8))
    examples = ["offsets 2 to 3", "offsets 6 to 7", "offset 9"]
    assert said(stored.gaps(entries, frames.ends(0, 10))) == [(1, None, "gap", 5, examples)]
    assert said(stored.gaps(entries, frames.ends(5, 9))) == [(1, None, "gap", 2, ["offsets 6 to 7"])]
    assert said(stored.gaps(entries, stored.ends_of(entries))) == [(1, None, "gap", 4, examples[:2])]
    assert said(stored.gaps(frames.stored([]), frames.ends(3, 5))) == [
        (1, None, "gap", 2, ["offsets 3 to 4"])
    ]
    assert said(stored.gaps(frames.entries(1, 2, 3), frames.ends(0, 3))) == []


def test_an_offset_that_is_there_twice(frames: Frames) -> None:
    """An entry that comes from the lake and from the store is found, and is no other duplicate."""
    seam = frames.entries(1, 2).unionAll(frames.entries(1))
    assert said(stored.duplicate_offsets(seam)) == [
        (1, None, "duplicate_offset", 1, ["offset 0 is there 2 times"])
    ]
    assert said(stored.duplicate_counts(seam)) == said(stored.duplicate_messages(seam, None)) == []


def test_a_count_that_is_stored_twice(frames: Frames) -> None:
    """The same publisher and count in a topic, in whichever partitions; not of another publisher or topic."""
    entries = frames.entries(1, 2, 2, 3).unionAll(frames.entries(3, partition=2))
    entries = entries.unionAll(frames.entries(1, publisher="q")).unionAll(frames.entries(1, topic="u"))
    assert said(stored.duplicate_counts(entries)) == [
        (1, None, "duplicate_count", 1, ["count 2 of p at 1:1 and 1:2"]),
        (2, None, "duplicate_count", 1, ["count 3 of p at 1:3 and 2:0"]),
    ]
    uncounted = frames.stored({"offset": n, "publisher_count": 1} for n in range(3))
    assert said(stored.duplicate_counts(uncounted)) == []


def test_a_message_that_is_stored_twice(frames: Frames) -> None:
    """A message is there more often than it was published, which is once if nobody says otherwise."""
    entries = frames.entries(1, 2, 2)
    found = [(1, None, "duplicate_message", 1, ["m2 at 1:1 and 1:2"])]
    assert said(stored.duplicate_messages(entries, None)) == found
    once = frames.events(event("published", message="m2"))
    assert said(stored.duplicate_messages(entries, once)) == found
    resent = event("published", message="m2", publisher="p", publisher_count=2)
    assert said(stored.duplicate_messages(entries, frames.events(resent, resent))) == found


def test_a_message_that_was_published_twice(frames: Frames) -> None:
    """Who publishes a message twice gets it twice; and what the history does not tell of is not judged."""
    twice = frames.events(event("published", message="m2"), event("published", message="m2"))
    counted = frames.events(
        *(event("published", message="m2", publisher="p", publisher_count=n) for n in (2, 3))
    )
    for events in (twice, counted, frames.events(event("published", message="other"))):
        assert said(stored.duplicate_messages(frames.entries(1, 2, 2), events)) == []


def test_counts_out_of_order(frames: Frames) -> None:
    """A publisher's entry that lies behind a later one of it in the same partition."""
    entries = frames.entries(1, 4, 2, 3, 5).unionAll(frames.entries(2, 1, partition=2, publisher="q"))
    assert said(stored.reordered(entries)) == [
        (
            1,
            None,
            "reordered",
            2,
            ["count 2 of p at offset 2, after count 4", "count 3 of p at offset 3, after count 4"],
        ),
        (2, None, "reordered", 1, ["count 1 of q at offset 1, after count 2"]),
    ]


def test_counts_in_order(frames: Frames) -> None:
    """Publishers between each other, partitions between each other, and a duplicate are not out of order."""
    entries = frames.entries(1, 3, 3, 1).unionAll(frames.entries(2, partition=2))
    mixed = frames.stored(
        {"offset": n, "publisher": name, "publisher_count": count}
        for n, (name, count) in enumerate([("a", 5), ("b", 1), ("a", 6), ("b", 2)])
    )
    assert said(stored.reordered(entries)) == said(stored.reordered(mixed)) == []


def test_counts_that_are_missing(frames: Frames) -> None:
    """Counts of which nothing is stored, in any partition, are noted."""
    entries = frames.entries(1, 2, 6).unionAll(frames.entries(3, partition=2))
    assert said(stored.count_gaps(entries)) == [(None, None, "count_gap", 2, ["counts 4 to 5 of p"])]


def test_a_loss(frames: Frames) -> None:
    """What was acknowledged is not there: by its offset, by its count, by its message."""
    events = frames.events(
        *(event("acknowledged", n, message=f"m{n + 1}") for n in range(4)),
        event("acknowledged", partition=None, publisher="p", publisher_count=2, message="m2"),
        event("acknowledged", partition=None, publisher="p", publisher_count=7),
        event("acknowledged", partition=None, message="m1"),
        event("acknowledged", partition=None, message="m8"),
        event("acknowledged", partition=None),
        event("published", message="m9"),
    )
    assert said(stored.unstored(frames.entries(1, 2, 3), events, frames.ends(0, 3))) == [
        (None, None, "lost", 2, ["count 7", "message m8"]),
        (1, None, "lost", 1, ["offset 3, message m4"]),
    ]


def test_another_message_in_its_place(frames: Frames) -> None:
    """An acknowledged offset at which there is another message is a loss as well."""
    events = frames.events(event("acknowledged", 1, message="mine"), event("acknowledged", 0))
    assert said(stored.unstored(frames.entries(1, 2), events, frames.ends(0, 2))) == [
        (1, None, "lost", 1, ["offset 1, message mine"])
    ]


def test_what_retention_removed_is_not_lost(frames: Frames) -> None:
    """Below the first offset nothing can be said; nor, once anything is gone, of what has no offset."""
    events = frames.events(
        event("acknowledged", 3, message="early"),
        event("acknowledged", 5, message="late"),
        event("acknowledged", partition=None, message="somewhere"),
    )
    assert said(stored.unstored(frames.stored([]), events, frames.ends(4, 5))) == [
        (None, None, "expired", 1, ["message somewhere"]),
        (1, None, "expired", 1, ["offset 3, message early"]),
        (1, None, "lost", 1, ["offset 5, message late"]),
    ]


def test_a_phantom(frames: Frames) -> None:
    """What was delivered is not stored, or something else is stored in its place."""
    wrong = event("delivered", 1, message="other")
    events = frames.events(*delivered(0, 1), wrong, *delivered(2, subscriber="r"))
    assert said(stored.unstored(frames.entries(1, 2), events, frames.ends(0, 2))) == [
        (1, "r", "phantom", 1, ["offset 2, message m3"]),
        (1, "s", "phantom", 1, ["offset 1, message other"]),
    ]
