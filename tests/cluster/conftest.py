"""Several databases a test: every node of a ring has a store of its own."""

import contextlib
from collections.abc import Iterator

import pytest

from fix_store import Databases, execute
from nuncius.ring import members as ring_members

TABLES = "key_values, key_lists, key_items, ring_notes, topics, partitions, entries"

ALONE = (
    "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid()"
)


@pytest.fixture(scope="session")
def stores_of_a_ring(database_from: Databases, template: str) -> Iterator[list[str]]:
    """Three databases for all tests of rings: making them takes longer than most tests."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(database_from(template)) for _ in range(3)]


@pytest.fixture
def dsns(stores_of_a_ring: list[str]) -> list[str]:
    """Three databases without keys and topics."""
    tables = ", ".join(f"nuncius.{table}" for table in TABLES.split(", "))
    for dsn in stores_of_a_ring:
        # What a test that failed has left open must not keep all others waiting.
        execute(dsn, ALONE)
        execute(dsn, f"truncate {tables} cascade")
    return stores_of_a_ring


@pytest.fixture
def registering_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes register again at once: what they do is tested, not how long they wait in between."""
    monkeypatch.setattr(ring_members, "RETRY_SECONDS", 0.01)
