"""Subscriptions of jobs have names of their own, which a store of an earlier program is given."""

import asyncpg
import pytest

from nuncius.store import migrations
from nuncius.store.driver import Connection
from nuncius.store.names import JOBS
from store.test_migrations import RELEASED, psql

_RUN = """
insert into nuncius.pipeline_runs (job_name, settings, state, started_at, finished_at)
values ('archive', $1, 'done', now() - interval '2 minutes', now() - interval '1 minute')
"""


@pytest.mark.parametrize(
    "call",
    [
        "nuncius.subscribe('news', $1)",
        "nuncius.subscribe_in_sequence('news', $1)",
        "nuncius.follow(array[1], $1, 'earliest', true)",
        "nuncius.confirm('news', $1, 0)",
    ],
)
async def test_refused(connection: Connection, call: str) -> None:
    """SQL refuses a job's name where a subscription is made or moved."""
    await connection.execute("select nuncius.create_topic('news')")
    with pytest.raises(asyncpg.InvalidParameterValueError, match="reserved"):
        await connection.fetch(f"select {call}", f"{JOBS}archive")


async def test_a_job_follows(connection: Connection) -> None:
    """A job subscribes under its own name, and its subscription is shown and ended like any other."""
    topic = await connection.fetchval("select nuncius.create_topic('news')")
    await connection.fetch("select nuncius.follow($1, 'archive', 'earliest', true, true)", [topic])
    (listed,) = await connection.fetch("select * from nuncius.list_subscriptions('news')")
    assert (listed["subscriber_name"], listed["holds_retention"]) == (f"{JOBS}archive", True)
    assert await connection.fetchval("select nuncius.unsubscribe('news', $1)", f"{JOBS}archive")


async def released(empty_dsn: str, empty: Connection, *topics: str, settings: str = "{}") -> None:
    """A store of an earlier program, in which the archive has run."""
    assert psql(empty_dsn, RELEASED[1]).stderr == ""
    await empty.execute(_RUN, settings)
    for topic in topics:
        await empty.execute("select nuncius.publish($1, 'first'), nuncius.publish($1, 'second')", topic)
        await empty.execute("select nuncius.subscribe($1, 'archive', 'earliest', true)", topic)
        await empty.execute("select nuncius.confirm($1, 'archive', 1)", topic)


async def made_by_the_run(empty: Connection) -> None:
    await empty.execute("update nuncius.subscriptions set created_at = now() - interval '90 seconds'")


async def subscriptions(empty: Connection) -> list[tuple[str, str, int]]:
    rows = await empty.fetch("select * from nuncius.list_subscriptions()")
    return [(row["topic_name"], row["subscriber_name"], row["lag"]) for row in rows]


async def test_the_archive_is_renamed(empty_dsn: str, empty: Connection) -> None:
    """A subscription that a run of the archive made gets the job's name and keeps its position."""
    await released(empty_dsn, empty, "news")
    await made_by_the_run(empty)
    await migrations.migrate(empty)
    assert await subscriptions(empty) == [("news", f"{JOBS}archive", 1)]


async def test_a_users_own_stays(empty_dsn: str, empty: Connection) -> None:
    """A subscription that no run made is a user's: it stays, and the archive goes on with a copy."""
    await released(empty_dsn, empty, "news")
    await empty.execute("select nuncius.subscribe('news', 'sue', 'earliest')")
    await migrations.migrate(empty)
    assert await subscriptions(empty) == [
        ("news", "archive", 1),
        ("news", f"{JOBS}archive", 1),
        ("news", "sue", 2),
    ]
    await empty.execute("select nuncius.confirm('news', 'archive', 2)")
    assert ("news", f"{JOBS}archive", 1) in await subscriptions(empty)


async def test_without_an_archive(empty_dsn: str, empty: Connection) -> None:
    """Where the archive never ran, a subscription called archive is a user's, and nothing is added."""
    await released(empty_dsn, empty, "news")
    await empty.execute("delete from nuncius.pipeline_runs")
    await migrations.migrate(empty)
    assert await subscriptions(empty) == [("news", "archive", 1)]


@pytest.mark.parametrize(("settings", "left"), [("{}", []), ('{"topic": "dead/news"}', [f"{JOBS}archive"])])
async def test_dead_letters(empty_dsn: str, empty: Connection, settings: str, left: list[str]) -> None:
    """The archive stays with dead letters only where it was asked for them."""
    await released(empty_dsn, empty, "dead/news", settings=settings)
    await made_by_the_run(empty)
    await migrations.migrate(empty)
    assert [name for _, name, _ in await subscriptions(empty)] == left
    assert await empty.fetchval("select count(*) from nuncius.positions") == len(left)
