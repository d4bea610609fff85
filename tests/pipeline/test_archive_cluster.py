"""The archive on a real cluster, through the command line: exactly once over `kill -9`.

Whoever reads a certain row waits for as long as the test holds a lock. So executors and drivers are killed in
the middle of a round, with another one committed before it, and a file of its own written.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nuncius.pipeline import place
from nuncius.pipeline.lake import Lake
from nuncius.pipeline.lake.ledger import LOCK
from pipeline.archiving import archived, confirmed
from pipeline.cluster import SETTINGS, Cluster, Driver, until
from pipeline.filling import fill, partition_ids, sql, value

ROWS = 30_000
ROWS_PER_ROUND = 20_000  # half of them from each of two partitions
BLOCKED = 15_000  # in the second round
GATE = 4711


class Gate:
    """Who reads a certain entry waits until the gate is opened."""

    def __init__(self, dsn: str, partition_id: int) -> None:
        self._dsn = dsn
        sql(
            dsn,
            "create function nuncius.pass_gate(body bytea) returns bytea stable language plpgsql as"
            f" $$ begin perform pg_advisory_xact_lock_shared({GATE}); return body; end $$",
        )
        sql(dsn, "alter table nuncius.entries rename to entries_behind")
        sql(
            dsn,
            "create view nuncius.entries as select partition_id, publisher_id, entry_offset, publisher_count,"
            " time_of_arrival, key, headers,"
            f" case when partition_id = {partition_id} and entry_offset = {BLOCKED}"
            " then nuncius.pass_gate(body) else body end as body from nuncius.entries_behind",
        )
        self._stack = ExitStack()
        self._keeper = self._stack.enter_context(place.connect(dsn))
        self._keeper.value("select pg_advisory_lock($1)", GATE)

    def somebody_waits(self) -> bool:
        waiting = "select exists (select from pg_locks where objid = $1 and not granted)"
        return bool(value(self._dsn, waiting, GATE))

    def send_away(self) -> None:
        """Ends those who wait: PostgreSQL has not heard yet that their programs are gone."""
        waiting = "select pg_terminate_backend(pid, 60000) from pg_locks where objid = $1 and not granted"
        assert all(row[0] for row in sql(self._dsn, waiting, GATE))

    def open(self) -> None:
        self._keeper.value("select pg_advisory_unlock($1)", GATE)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def gate(dsn: str) -> Iterator[Gate]:
    """A topic with two partitions, the first of which has an entry behind a gate."""
    fill(dsn, "news", ROWS, partitions=2)
    gate = Gate(dsn, partition_ids(dsn, "news")[1])
    yield gate
    gate.close()


def start(sparks: Cluster, dsn: str, directory: Path) -> Driver:
    settings = {"lake": str(directory / "lake"), "rowsPerRound": str(ROWS_PER_ROUND)}
    arguments = ["pipeline", "run", "archive", "--master", sparks.url, "--store", dsn]
    for option, pairs in (("--set", settings), ("--conf", SETTINGS)):
        for name, setting in pairs.items():
            arguments += [option, f"{name}={setting}"]
    return Driver(directory / "driver.log", "nuncius", *arguments)


def until_it_stands(driver: Driver, gate: Gate, lake: Path, files: int = 2) -> None:
    """Waits until a task stands before the gate, and the other one has written its file beside so many."""

    def stands() -> bool:
        assert not driver.ended(), driver.words
        return gate.somebody_waits() and len(list(lake.glob("entries/*"))) > files

    until(stands, "the gate")
    assert Lake(lake).rounds == 1


def assert_archived_once(dsn: str, lake: Path) -> None:
    """Every entry is in the table, none twice, and all of them are confirmed."""
    ids = list(partition_ids(dsn, "news").values())
    found = [(row["partition_id"], row["offset"]) for row in archived(lake)]
    assert found == [(partition_id, offset) for partition_id in ids for offset in range(ROWS)]
    assert confirmed(dsn) == dict.fromkeys(ids, ROWS)


def test_kills(sparks: Cluster, dsn: str, gate: Gate, tmp_path: Path) -> None:
    """A driver that dies in the middle of a round leaves what was committed; the next run does the rest. When
    its executors die in the middle of that, they are replaced, and it goes on to its end."""
    lake = tmp_path / "lake"
    driver = start(sparks, dsn, tmp_path)
    try:
        until_it_stands(driver, gate, lake)
    finally:
        driver.kill()
    assert len(archived(lake)) == ROWS_PER_ROUND
    until(lambda: not value(dsn, "select exists (select from pg_locks where classid = $1)", LOCK), "its end")
    until(lambda: not sparks.executors(), "the end of its executors")
    gate.send_away()
    left = len(list(lake.glob("entries/*")))
    again = start(sparks, dsn, tmp_path)
    try:
        until_it_stands(again, gate, lake, left)
        sparks.kill_executors()
        gate.open()
        assert again.wait() == 0, again.words
    finally:
        again.kill()
    assert_archived_once(dsn, lake)
    assert len(list(lake.glob("entries/*"))) > len(Lake(lake).files())
