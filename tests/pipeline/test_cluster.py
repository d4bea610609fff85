"""On a real cluster: source and sink are exactly-once over `kill -9` of executors and drivers."""

import fcntl
from pathlib import Path

import pytest

from pipeline.cluster import Cluster, Driver, until
from pipeline.filling import sql, value

ROWS = 10_000  # in each of four partitions
BATCH = 5_000  # of each of them in one batch of the stream


@pytest.fixture
def filled(dsn: str) -> str:
    """A topic with 40,000 different numbers in four partitions."""
    value(dsn, "select nuncius.create_topic('in', 4)")
    value(dsn, "select nuncius.create_topic('out', 2)")
    sql(
        dsn,
        "insert into nuncius.entries (partition_id, entry_offset, key, body)"
        " select p.partition_id, n, 'key ' || n % 100,"
        " convert_to(lpad(((p.partition - 1) * $1 + n)::text, 200, '0'), 'UTF8')"
        " from nuncius.partitions p join nuncius.topics t using (topic_id), generate_series(0, $1 - 1) n"
        " where t.topic_name = 'in'",
        ROWS,
    )
    return dsn


class Copying:
    """The copying driver, its signs and its checkpoint."""

    def __init__(self, sparks: Cluster, dsn: str, directory: Path, stop: int) -> None:
        self._arguments = (sparks.url, dsn, str(directory / "checkpoint"), str(stop), str(directory))
        self._directory = directory
        self._dsn = dsn
        self._stop = stop
        self._gate = (directory / "gate").open("w")
        fcntl.flock(self._gate, fcntl.LOCK_EX)

    def start(self) -> Driver:
        return Driver(self._directory / "driver.log", "pipeline.cluster_copy", *self._arguments)

    def until_it_stands(self, driver: Driver) -> None:
        """Waits until the task with the row where it stops has come there, and has written some of its rows;
        and until the other tasks of its batch have written theirs."""
        first = self._stop - self._stop % BATCH
        others = 4 * first + 3 * BATCH

        def stands() -> bool:
            assert not driver.ended(), driver.words
            if not (self._directory / "reached").exists():
                return False
            there = written(self._dsn)
            mine = sum(first <= number < self._stop for number in there)
            return 0 < mine < BATCH and len(there) == others + mine

        until(stands, "the row")

    def forget(self) -> None:
        """The next who comes to the row stops there, too."""
        (self._directory / "reached").unlink()

    def release(self) -> None:
        self._gate.close()


def written(dsn: str) -> list[int]:
    """The numbers that were copied."""
    rows = sql(
        dsn,
        "select e.body from nuncius.entries e join nuncius.partitions p using (partition_id)"
        " join nuncius.topics t using (topic_id) where t.topic_name = 'out'",
    )
    return [int(row["body"]) for row in rows]


def assert_copied_once(dsn: str) -> None:
    """All rows are there, none twice, each where its key belongs, those of a key in order."""
    (row,) = sql(
        dsn,
        "select count(*) as rows, count(distinct e.body) as different,"
        " count(*) filter (where p.partition <> nuncius.partition_of(e.key, 2)) as misplaced"
        " from nuncius.entries e join nuncius.partitions p using (partition_id)"
        " join nuncius.topics t using (topic_id) where t.topic_name = 'out'",
    )
    assert tuple(row) == (4 * ROWS, 4 * ROWS, 0)
    disorder = value(
        dsn,
        "select count(*) from (select convert_from(e.body, 'UTF8')::integer as n, lag(convert_from(e.body,"
        " 'UTF8')::integer) over (partition by e.key, convert_from(e.body, 'UTF8')::integer / $1"
        " order by e.entry_offset) as before from nuncius.entries e join nuncius.partitions p"
        " using (partition_id) join nuncius.topics t using (topic_id) where t.topic_name = 'out') o"
        " where o.before > o.n",
        ROWS,
    )
    assert disorder == 0


def test_kills(sparks: Cluster, filled: str, tmp_path: Path) -> None:
    """A driver that dies in its second batch, with part of that written, is started again and repeats the
    batch. Executors that die in the middle of it are replaced, and their tasks repeated. Every row is there
    once. The package came to the executors with the job."""
    copying = Copying(sparks, filled, tmp_path, stop=9500)
    driver = copying.start()
    try:
        copying.until_it_stands(driver)
    finally:
        driver.kill()
    copying.forget()
    again = copying.start()
    try:
        copying.until_it_stands(again)
        assert sparks.executors()
        sparks.kill_executors()
        copying.release()
        assert again.wait() == 0, again.words
    finally:
        again.kill()
    assert_copied_once(filled)
    assert "nuncius-for-executors.zip" in again.words
