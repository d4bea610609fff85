"""Plain sentences on the state of a store."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nuncius.broker.observe.facts_store import Advice, OpenTransaction, ProcedureFacts, StoreFacts, TableFacts

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TABLES = (TableFacts("entries", 2, 1, 10, 0, None), TableFacts("messages", 2, 1, 10, 5, NOW))
FINE = StoreFacts("18.4", 1, NOW, 1, 10, 100, (), None, TABLES, (), ())


def transaction(age: timedelta) -> OpenTransaction:
    return OpenTransaction(4711, "bi", "report", None, "idle in transaction", NOW - age, "select 1")


def advice(store: StoreFacts) -> Advice:
    (found,) = store.advice()
    return found


def test_a_store_in_order() -> None:
    """It is said that there is nothing to do; short transactions are nothing to mention."""
    assert advice(FINE).level == "ok"
    assert advice(replace(FINE, transactions=(transaction(timedelta(seconds=5)),))).level == "ok"
    assert (FINE.dead, FINE.live) == (5, 20)


def test_what_is_switched_off() -> None:
    """Durability comes first: it is a failure, not a warning."""
    store = replace(FINE, off=("fsync",), connections=90)
    first, second = store.advice()
    assert (first.level, second.level) == ("fail", "warn")
    assert "fsync is off" in first.text
    assert "90 of 100 connections" in second.text


def test_who_holds_a_transaction_open() -> None:
    """Who it is, for how long, and how to end it."""
    found = advice(replace(FINE, transactions=(transaction(timedelta(minutes=7)),)))
    assert "process 4711 (bi, report) is open for 7 min" in found.text
    assert "pg_terminate_backend(4711)" in found.remedy
    assert "'p1'" in advice(replace(FINE, prepared="p1")).text


def test_dead_rows() -> None:
    """Many dead rows, and more than live ones, are vacuum's business."""
    many = TableFacts("messages", 2, 1, 10, 2_000_000, None)
    found = advice(replace(FINE, tables=(TABLES[0], many)))
    assert "most in messages" in found.text
    assert advice(replace(FINE, tables=(replace(many, live=9_000_000),))).level == "ok"


def test_procedures() -> None:
    """The mean of what was never called is nothing."""
    assert (ProcedureFacts("f", 4, 10.0).mean_ms, ProcedureFacts("f", 0, 0.0).mean_ms) == (2.5, 0.0)
