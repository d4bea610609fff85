"""From times to offsets, compared with looking at every entry."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from nuncius.pipeline.catalogue import look, stores
from nuncius.pipeline.source import times
from nuncius.pipeline.source.options import moment, parse
from pipeline.filling import drop_before, fill, sql

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
START = (BEGIN - moment(0)) // timedelta(microseconds=1)
ROWS = 60


@pytest.mark.parametrize("seed", range(8))
def test_offsets_of_times_are_exact(dsn: str, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The first entry not before a time and the last before it, though the clock went back and forth."""
    monkeypatch.setattr(times, "CLOCK_SLACK", 20)
    monkeypatch.setattr(times, "STEP", 7)
    dice = random.Random(seed)
    fill(dsn, "news", ROWS)
    first = dice.choice([0, 0, 13])
    drop_before(dsn, "news", first)
    # Microseconds that go up, except that each may be late by less than the slack.
    arrived = [5 * n + dice.choice([0, 0, 0, dice.randrange(20)]) for n in range(ROWS)]
    sql(
        dsn,
        "update nuncius.entries e set time_of_arrival = t.at"
        " from unnest($1::bigint[], $2::timestamptz[]) t(n, at) where e.entry_offset = t.n",
        list(range(ROWS)),
        [BEGIN + timedelta(microseconds=at) for at in arrived],
    )
    with stores(dsn) as asked:
        (partition,) = look(asked, parse({"store": dsn, "topic": "news"}, streaming=False))
        for time in [*range(0, 5 * ROWS + 30, 3), -1000, 10**9]:
            later = [n for n in range(first, ROWS) if arrived[n] >= time]
            earlier = [n for n in range(first, ROWS) if arrived[n] < time]
            assert times.first_not_before(asked, partition, START + time) == min(later, default=ROWS)
            assert times.end_before(asked, partition, START + time) == max(earlier, default=first - 1) + 1
