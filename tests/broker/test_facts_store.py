"""Findings on the state of a store."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nuncius.broker.observe.facts_store import (
    ProcedureFacts,
    Setting,
    StoreFacts,
    StoreTransaction,
    TableFacts,
)
from nuncius.broker.observe.findings import Finding, Severity, problems, sentence

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TABLES = (TableFacts("entries", 2, 1, 10, 0, None), TableFacts("messages", 2, 1, 10, 5, NOW))
SETTINGS = (Setting("autovacuum", "on", "on", None), Setting("shared_buffers", "1", "128MB", 128 << 20))
FINE = StoreFacts(1, "18.4", NOW, 1, 10, 100, None, None, SETTINGS, TABLES)


def transaction(age: timedelta) -> StoreTransaction:
    return StoreTransaction(4711, "bi", "report", None, "idle in transaction", NOW - age, "select 1")


def problem(store: StoreFacts) -> Finding:
    (found,) = problems([*store.findings(), store.speed()])
    return found


def test_a_store_in_order() -> None:
    """All checks are ok; a short transaction is no problem."""
    assert {each.state for each in FINE.findings()} == {Severity.OK}
    young = replace(FINE, transactions=(transaction(timedelta(seconds=5)),))
    assert problems(young.findings()) == ()
    assert [each.detail for each in young.findings()[1:]] == [
        "the oldest is 5.0 s old, of process 4711 (bi, report)",
        "5 dead beside 20 live, vacuumed 0.0 s ago",
        "10 of 100 connections are in use",
    ]
    assert "never vacuumed" in replace(FINE, tables=()).findings()[2].detail


def test_failures_come_first() -> None:
    """Durability that is off is a failure, a crowded server is a warning."""
    store = replace(FINE, settings=(*SETTINGS, Setting("fsync", "off", "off", None)), connections=90)
    first, second = problems(reversed(store.findings()))
    assert (first.state, first.detail) == (Severity.FAIL, "off: fsync")
    assert (second.state, second.detail) == (Severity.WARN, "90 of 100 connections are in use")
    assert sentence(first.advice).startswith("Turn it on")


@pytest.mark.parametrize(
    ("age", "shown"), [(timedelta(minutes=7), "7 min"), (timedelta(hours=3, minutes=5), "3 h")]
)
def test_an_open_transaction(age: timedelta, shown: str) -> None:
    """The finding names the session, the time, and how to end it."""
    found = problem(replace(FINE, transactions=(transaction(age),)))
    assert f"process 4711 (bi, report) is open for {shown}" in found.detail
    assert "pg_terminate_backend(4711)" in found.advice


def test_a_prepared_transaction() -> None:
    """A prepared transaction is a problem after a minute."""
    store = replace(FINE, prepared="p1", prepared_at=NOW - timedelta(minutes=2))
    assert "'p1' is open for 2 min" in problem(store).detail
    assert problems(replace(store, prepared_at=NOW).findings()) == ()


def test_dead_rows() -> None:
    """Many dead rows, and more than live ones, are a problem."""
    many = TableFacts("messages", 2, 1, 10, 2_000_000, None)
    assert problem(replace(FINE, tables=(TABLES[0], many))).detail.endswith("most in messages")
    assert problems(replace(FINE, tables=(replace(many, live=9_000_000),)).findings()) == ()


def test_settings_that_cost_speed() -> None:
    """Small buffers are a warning, autovacuum that is off is a failure."""
    small = replace(FINE, settings=(Setting("shared_buffers", "1", "8kB", 8192),))
    assert problem(small).advice.startswith("raise shared_buffers")
    off = replace(FINE, settings=(Setting("autovacuum", "off", "off", None),))
    assert problem(off).state is Severity.FAIL


def test_procedures() -> None:
    """A procedure that was never called has a mean of 0."""
    assert (ProcedureFacts("f", 4, 10.0).mean_ms, ProcedureFacts("f", 0, 0.0).mean_ms) == (2.5, 0.0)
