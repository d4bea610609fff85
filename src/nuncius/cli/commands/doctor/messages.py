"""The checks of messages, consumers and nodes that `nuncius doctor` makes in a database with our schema."""

from collections.abc import AsyncIterator
from typing import Any

from nuncius.cli.commands.doctor.findings import Finding, ok, warn
from nuncius.store.driver import Connection

INACTIVE_SECONDS = 300.0
SILENCE_SECONDS = 5.0
GREAT_LAG = 100_000
OLD_MESSAGE_SECONDS = 86_400.0


async def examine(connection: Connection) -> AsyncIterator[Finding]:
    row: Any = await connection.fetchrow(
        "select * from nuncius.overview($1, $2)", INACTIVE_SECONDS, SILENCE_SECONDS
    )
    yield await _deliveries(connection, row)
    yield await _subscriptions(connection, row)
    yield await _queues(connection, row)
    yield _actors(row)
    yield _nodes(row)


async def _deliveries(connection: Connection, row: Any) -> Finding:
    dead: Any = await connection.fetchrow(
        "select coalesce(sum(letters), 0)::bigint as letters,"
        " (array_agg(name order by letters desc) filter (where letters > 0))[1] as worst"
        " from nuncius.places_of_the_dead()"
    )
    if dead["letters"]:
        return warn(
            "dead letters",
            f"{dead['letters']:,}, most in {dead['worst']!r}",
            "see why nobody could take them; move them back in the console, or purge them",
        )
    if row["failures"]:
        return warn(
            "deliveries",
            f"failed and come again: {row['failures']:,}",
            "nuncius status says where and why",
        )
    return ok("deliveries", "nothing has failed")


async def _subscriptions(connection: Connection, row: Any) -> Finding:
    detail = f"{row['subscriptions']:,}, the furthest is behind by {row['lag']:,}"
    if row["lag"] <= GREAT_LAG:
        return ok("subscriptions", detail)
    worst: Any = await connection.fetchrow(
        "select topic_name, subscriber_name from nuncius.subscriptions join nuncius.topics using (topic_id)"
        " order by nuncius.lag_of(subscription_id) desc limit 1"
    )
    return warn(
        "subscriptions",
        f"{detail}: {worst['subscriber_name']!r} of {worst['topic_name']!r}",
        "see whether its reader runs; end the subscription if nobody needs it",
    )


async def _queues(connection: Connection, row: Any) -> Finding:
    oldest: Any = await connection.fetchrow(
        "select queue_name, extract(epoch from now() - oldest)::float8 as seconds"
        " from nuncius.oldest_in_queues(array(select queue_id from nuncius.queues order by 1 limit 10000))"
        " where oldest is not null and queue_name not like 'dead/%' order by oldest limit 1"
    )
    if oldest is None:
        return ok("queues", f"{row['queues']:,}, all empty")
    detail = f"{row['queues']:,}, the oldest message is in {oldest['queue_name']!r}"
    if oldest["seconds"] > OLD_MESSAGE_SECONDS:
        return warn("queues", f"{detail} for more than a day", "see whether somebody still reads that queue")
    return ok("queues", detail)


def _actors(row: Any) -> Finding:
    if row["inactive"]:
        return warn(
            "activity",
            f"inactive producers, consumers and brokers: {row['inactive']:,}",
            "nuncius status names them; the console's page Cluster removes brokers that are gone",
        )
    return ok("activity", "nobody is inactive")


def _nodes(row: Any) -> Finding:
    silent = row["nodes"] - row["nodes_alive"]
    if silent:
        return warn(
            "cluster",
            f"silent nodes: {silent} of {row['nodes']}",
            "start them again, or remove them on the console's page Cluster",
        )
    return ok("cluster", f"nodes: {row['nodes']}, all alive")
