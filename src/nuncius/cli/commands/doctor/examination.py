"""The checks that `nuncius doctor` makes of a database."""

from collections.abc import AsyncIterator, Iterable
from typing import Any

from nuncius.broker.observe.facts import read_overview
from nuncius.broker.observe.facts_store import read_store
from nuncius.broker.observe.findings import Finding, fail, ok, warn
from nuncius.store import migrations
from nuncius.store.driver import Connection
from nuncius.store.queries import procedure, query

DEAD_LETTERS = procedure("places_of_the_dead", 0)
HIGHEST_LAG = query("health", "highest_lag")
OLDEST_MESSAGE = query("health", "oldest_message")

INACTIVE_SECONDS = 300.0
OLD_MESSAGE_SECONDS = 86_400.0


async def examine(connection: Connection) -> AsyncIterator[Finding]:
    """Make all checks of a database. Yield one finding after the other."""
    facts = await read_store(connection.fetch, await migrations.version(connection))
    durability, *others = facts.findings()
    yield _version(connection, facts.version)
    yield _schema(facts.schema)
    for finding in (durability, facts.speed(), *others):
        yield finding
    if facts.schema == migrations.newest():
        for finding in await _messages(connection):
            yield finding


def _version(connection: Connection, version: str) -> Finding:
    if connection.get_server_version().major < migrations.OLDEST_SERVER:
        return fail("PostgreSQL", version, f"upgrade it to {migrations.OLDEST_SERVER} or newer")
    return ok("PostgreSQL", version)


def _schema(current: int | None) -> Finding:
    known = migrations.newest()
    if current is None:
        return warn("schema", "there is none", "nuncius up, or nuncius migrate, makes it")
    if current > known:
        return fail("schema", f"version {current}, and this program knows {known}", "upgrade this program")
    if current < known:
        advice = "nuncius up, or nuncius migrate, brings it up to date"
        return warn("schema", f"version {current} of {known}", advice)
    return ok("schema", f"version {current}")


async def _messages(connection: Connection) -> Iterable[Finding]:
    """Check messages, consumers and nodes."""
    dead = {row["name"]: row["letters"] for row in await connection.fetch(DEAD_LETTERS)}
    overview = await read_overview(
        connection.fetch, INACTIVE_SECONDS, messages=0, dead_letters=sum(dead.values())
    )
    lag: Any = await connection.fetchrow(HIGHEST_LAG)
    found = overview.findings(
        repr(max(dead, key=dead.__getitem__)) if dead else "",
        f"{lag['subscriber_name']!r} of {lag['topic_name']!r}" if lag else "",
    )
    found.insert(-2, await _queues(connection, overview.queues))
    return found


async def _queues(connection: Connection, queues: int) -> Finding:
    oldest: Any = await connection.fetchrow(OLDEST_MESSAGE)
    if oldest is None:
        return ok("queues", f"{queues:,}, all empty")
    detail = f"{queues:,}, the oldest message is in {oldest['queue_name']!r}"
    if oldest["seconds"] > OLD_MESSAGE_SECONDS:
        return warn("queues", f"{detail} for more than a day", "check whether the queue still has a consumer")
    return ok("queues", detail)
