"""The whole audit: what is put together from the checks, and the balance beside it."""

import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertSchemaEqual

from nuncius.pipeline.jobs.audit import ACCOUNTS, accounts, audit
from nuncius.pipeline.jobs.auditing.findings import FAULT, KINDS, NOTE
from pipeline.auditing import Frames, delivered, event, told


@pytest.fixture
def frames(spark: SparkSession) -> Frames:
    return Frames(spark)


def acknowledged(*offsets: int) -> list[dict[str, object]]:
    return [
        event(kind, offset, message=f"m{offset + 1}", publisher="p", publisher_count=offset + 1)
        for offset in offsets
        for kind in ("published", "acknowledged")
    ]


def test_a_clean_topic(frames: Frames) -> None:
    """Where everything is as it should be, nothing is found."""
    stored = frames.entries(1, 2, 3)
    history = frames.events(
        *acknowledged(0, 1, 2), event("subscribed", 0), *delivered(0, 1, 2), event("confirmed", 2)
    )
    positions = frames.positions({"subscriber": "s", "position": 3, "next_offset": 3})
    assert told(audit(stored, history, positions)) == []
    assert told(audit(stored)) == told(audit(None, None, positions)) == []


def test_everything_at_once(frames: Frames) -> None:
    """Faults of all kinds in one topic are told apart."""
    stored = frames.entries(1, 3, 2, 2).unionAll(frames.stored([{"offset": 5}]))
    history = frames.events(*acknowledged(6), *delivered(0, 2, 1, 7, 7), event("confirmed", 8))
    positions = frames.positions({"subscriber": "s", "position": 1, "next_offset": 6})
    kinds = [kind for _, _, kind, _, _ in told(audit(stored, history, positions))]
    assert kinds == [
        "duplicate_count",
        "forgotten",
        "gap",
        "lag",
        "lost",
        "out_of_order",
        "phantom",
        "redelivered",
        "reordered",
        "repeated",
        "skipped",
    ]


def test_severities(frames: Frames) -> None:
    """Each kind is a fault or a note."""
    rows = audit(frames.entries(1, 1, 3)).collect()
    assert {row.kind: row.severity for row in rows} == {
        "duplicate_count": FAULT,
        "duplicate_message": FAULT,
        "count_gap": NOTE,
    }
    assert {kind.severity for kind in KINDS.values()} == {FAULT, NOTE}


def test_nothing_to_audit() -> None:
    """An audit of nothing is a mistake, not a clean result."""
    with pytest.raises(ValueError, match="nothing to audit"):
        audit(None, None, None)


def test_the_ends_may_be_others_than_the_store_says(frames: Frames) -> None:
    """With the lake, more must be there than what the store still has."""
    positions = frames.positions({"first_offset": 2, "next_offset": 3})
    entries = frames.stored([{"offset": 2}])
    assert told(audit(entries, None, positions)) == []
    assert told(audit(entries, None, positions, frames.ends(0, 3))) == [
        (1, None, "gap", 2, ["offsets 0 to 1"])
    ]


def test_the_balance(frames: Frames) -> None:
    """What there was of everything: a row for the topic, and one for each of its subscribers."""
    stored = frames.entries(1, 2, 3)
    history = frames.events(
        *acknowledged(0, 1, 2), *delivered(0, 1, 1), event("confirmed", 0), *delivered(0, subscriber="r")
    )
    positions = frames.positions(
        {"subscriber": "s", "position": 2, "next_offset": 3}, {"subscriber": "new", "next_offset": 3}
    )
    balance = accounts(stored, history, positions)
    assertSchemaEqual(balance.schema, frames.spark.createDataFrame([], ACCOUNTS).schema)
    assert [tuple(row) for row in balance.orderBy("topic", "subscriber").collect()] == [
        ("t", None, 3, 3, 3, None, None, None, None),
        ("t", "new", None, None, None, None, None, None, 3),
        ("t", "r", None, None, None, 1, 1, None, None),
        ("t", "s", None, None, None, 2, 3, 2, 1),
    ]
    (_, _, row) = accounts(None, history, None).orderBy("subscriber").collect()
    assert (row.subscriber, row.stored, row.confirmed, row.lag) == ("s", None, 1, None)
