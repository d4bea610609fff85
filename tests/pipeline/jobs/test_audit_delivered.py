"""The audit of deliveries and confirmations: every planted fault is found, and nothing else."""

import pytest
from pyspark.sql import SparkSession

from nuncius.pipeline.jobs.auditing import delivered as deliveries
from pipeline.auditing import Frames, delivered, event, said


@pytest.fixture
def frames(spark: SparkSession) -> Frames:
    return Frames(spark)


def test_a_skipped_entry(frames: Frames) -> None:
    """Something was delivered that lies beyond what was not."""
    events = frames.events(*delivered(5, 6, 9), *delivered(0, partition=2))
    assert said(deliveries.skipped(events, None, None)) == [(1, "s", "skipped", 2, ["offsets 7 to 8"])]
    assert said(deliveries.skipped(frames.events(*delivered(5, 7, 6)), None, None)) == []


def test_the_start_of_a_subscriber(frames: Frames) -> None:
    """What lies before the first delivery was skipped only if the subscriber should have had it."""
    later = event("subscribed", 8)
    start = frames.events(event("subscribed", 3), *delivered(5, 6), later, *delivered(8))
    assert said(deliveries.skipped(start, None, None)) == [
        (1, "s", "skipped", 3, ["offsets 3 to 4", "offset 7"])
    ]
    nothing_yet = frames.events(event("subscribed", 3))
    assert said(deliveries.skipped(nothing_yet, None, None)) == []


def test_a_confirmation_beyond_the_deliveries(frames: Frames) -> None:
    """What is confirmed was delivered: told by the subscriber, or known to the store."""
    events = frames.events(*delivered(0, 1), event("confirmed", 1), *delivered(3))
    found = [(1, "s", "skipped", 1, ["offset 2"])]
    assert said(deliveries.skipped(events, None, None)) == found
    told = frames.events(*delivered(0, 1), event("confirmed", 2))
    assert said(deliveries.skipped(told, None, None)) == found
    stored = frames.positions({"subscriber": "s", "position": 3}, {"subscriber": "unknown", "position": 9})
    assert said(deliveries.skipped(frames.events(*delivered(0, 1)), stored, None)) == found
    without = frames.events(event("subscribed", 2), event("confirmed", 2))
    assert said(deliveries.skipped(without, None, None)) == found


def test_retention_passes_a_subscriber(frames: Frames) -> None:
    """What retention has removed may have been removed before the subscriber came to it."""
    events = frames.events(*delivered(0, 9))
    assert said(deliveries.skipped(events, None, frames.ends(7, 10))) == [
        (1, "s", "expired", 6, ["offsets 1 to 6"]),
        (1, "s", "skipped", 2, ["offsets 7 to 8"]),
    ]


def test_a_delivery_out_of_order(frames: Frames) -> None:
    """A lower offset comes after a higher one, in the same session and partition."""
    events = frames.events(*delivered(0, 2, 1, 3), *delivered(0, partition=2))
    assert said(deliveries.out_of_order(events)) == [(1, "s", "out_of_order", 1, ["offset 1 after offset 2"])]


def test_deliveries_in_order(frames: Frames) -> None:
    """Another session begins anew, an announced repetition may come late, a repetition is no reordering."""
    sessions = frames.events(*delivered(0, 1, 2), *delivered(1, 2, session="two"))
    announced = frames.events(*delivered(0, 2), *delivered(1, redelivered=True))
    again = frames.events(*delivered(0, 1, 0))
    for events in (sessions, announced, again):
        assert said(deliveries.out_of_order(events)) == []


def test_a_redelivery_is_noted(frames: Frames) -> None:
    """What comes more than once is counted, by offset, or by message where there is no offset."""
    by_name = [event("delivered", message="x", partition=None)] * 3
    events = frames.events(*delivered(0, 1), *delivered(1, redelivered=True), *by_name)
    assert said(deliveries.redelivered(events)) == [
        (None, "s", "redelivered", 2, ["x came 3 times"]),
        (1, "s", "redelivered", 1, ["offset 1 came 2 times"]),
    ]


def test_an_unannounced_repetition(frames: Frames) -> None:
    """In one session an entry comes once, unless it is announced as delivered again."""
    events = frames.events(*delivered(0, 1, 1), *delivered(0, redelivered=True))
    assert said(deliveries.repeated(events)) == [(1, "s", "repeated", 1, ["offset 1, message m2"])]


def test_a_repetition_in_another_life(frames: Frames) -> None:
    """After a crash, what was not confirmed comes again, as it must; what was confirmed must not."""
    confirmed = [*delivered(0, 1, 2), event("confirmed", 1)]
    rightly = frames.events(*confirmed, *delivered(2, session="two"))
    assert said(deliveries.repeated(rightly)) == []
    itself = frames.events(*confirmed, *delivered(1, 2, session="two", redelivered=True))
    assert said(deliveries.repeated(itself)) == [(1, "s", "repeated", 1, ["offset 1, message m2"])]
    earlier = frames.events(*confirmed, *delivered(0, 2, session="two"))
    assert said(deliveries.repeated(earlier)) == [(1, "s", "repeated", 1, ["offset 0, message m1"])]
    failed = frames.events(*confirmed, *delivered(0, session="two", redelivered=True))
    assert said(deliveries.repeated(failed)) == [], "the subscriber could not take it the first time"
    beside = frames.events(event("published", session="two"), *confirmed, *delivered(1, session="two"))
    assert said(deliveries.repeated(beside)) == [], "it was on its way when the other confirmed it"


def test_what_is_not_confirmed(frames: Frames) -> None:
    """Deliveries beyond the last confirmation that anybody knows of are noted."""
    events = frames.events(*delivered(0, 1, 2, 3), event("confirmed", 0), *delivered(7, subscriber="r"))
    assert said(deliveries.unconfirmed(events, None)) == [
        (1, "r", "unconfirmed", 1, ["offset 7"]),
        (1, "s", "unconfirmed", 3, ["offsets 1 to 3"]),
    ]
    positions = frames.positions({"subscriber": "s", "position": 3}, {"subscriber": "r", "position": 8})
    assert said(deliveries.unconfirmed(events, positions)) == [(1, "s", "unconfirmed", 1, ["offset 3"])]


def test_what_is_not_delivered_yet(frames: Frames) -> None:
    """Acknowledged entries beyond a subscriber's last delivery, or its start, are noted."""
    acknowledged = [event("acknowledged", n, message=f"m{n + 1}") for n in range(4)]
    nameless = [event("acknowledged", partition=None, message=name) for name in ("m1", "m9")]
    elsewhere = event("acknowledged", 0, partition=2, message="x")
    subscribed = event("subscribed", 3, subscriber="r")
    events = frames.events(*acknowledged, *nameless, elsewhere, *delivered(0, 1), subscribed)
    assert said(deliveries.undelivered(events)) == [
        (None, "r", "undelivered", 2, ["message m1", "message m9"]),
        (None, "s", "undelivered", 1, ["message m9"]),
        (1, "r", "undelivered", 1, ["offset 3, message m4"]),
        (1, "s", "undelivered", 2, ["offset 2, message m3", "offset 3, message m4"]),
        (2, "r", "undelivered", 1, ["offset 0, message x"]),
        (2, "s", "undelivered", 1, ["offset 0, message x"]),
    ]


def test_a_forgotten_confirmation(frames: Frames) -> None:
    """The store stands behind what it said was confirmed."""
    events = frames.events(
        event("confirmed", 4), event("confirmed", 2), event("confirmed", 0, subscriber="r")
    )
    behind = frames.positions({"subscriber": "s", "position": 3}, {"subscriber": "r", "position": 1})
    assert said(deliveries.forgotten(events, behind)) == [
        (1, "s", "forgotten", 2, ["confirmed up to 5, stored is 3"])
    ]
    level = frames.positions({"subscriber": "s", "position": 5})
    assert said(deliveries.forgotten(events, level)) == [], "r has unsubscribed"


def test_lag(frames: Frames) -> None:
    """How far a subscriber is behind is noted; one beyond the end has lost what was there."""
    positions = frames.positions(
        {"subscriber": "s", "position": 3, "next_offset": 10},
        {"subscriber": "new", "first_offset": 4, "next_offset": 10},
        {"subscriber": "level", "position": 10, "next_offset": 10},
        {"subscriber": "far", "position": 12, "next_offset": 10},
        {"next_offset": 10},
    )
    assert said(deliveries.failing(positions)) == []
    assert said(deliveries.lags(positions)) == [
        (1, "far", "ahead", 2, ["at 12 of 10"]),
        (1, "new", "lag", 6, ["at 4 of 10"]),
        (1, "s", "lag", 7, ["at 3 of 10"]),
    ]


def test_what_could_not_be_taken(frames: Frames) -> None:
    """Entries that wait to be tried again are noted."""
    positions = frames.positions({"subscriber": "s", "position": 7, "failing": 2})
    assert said(deliveries.failing(positions)) == [(1, "s", "failing", 2, ["2 before offset 7"])]
