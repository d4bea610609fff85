"""What `nuncius doctor` says of messages, settings and those who handle them."""

import pytest

from nuncius.broker.observe import facts
from nuncius.broker.observe.findings import Finding, Severity
from nuncius.cli.commands.doctor import examination
from nuncius.store.driver import Connection


async def findings(connection: Connection) -> dict[str, Finding]:
    return {found.check: found for found in await examination.examine(connection)}


async def test_a_store_in_order(connection: Connection) -> None:
    """An empty store has nothing to complain of."""
    found = await findings(connection)
    for check in ("deliveries", "subscriptions", "queues", "activity", "cluster", "settings"):
        assert found[check].state is Severity.OK
    assert found["queues"].detail == "0, all empty"


async def test_failures_and_dead_letters(connection: Connection) -> None:
    """What failed is mentioned, what nobody could take before it."""
    await connection.execute(
        "insert into nuncius.leases (lease_id, origin, queue_id, sender_id, receiver_id, context, priority,"
        " time_of_arrival, message, attempts, holder, batch, due_at)"
        " values (1, 1, 1, 0, 0, 0, 5, now(), 'x', 1, 0, 1, now() + interval '1 h')"
    )
    failing = (await findings(connection))["deliveries"]
    assert (failing.state, failing.detail) == (Severity.WARN, "1 message awaiting redelivery")
    await connection.execute("select nuncius.publish('dead/t', 'x'::text)")
    dead = (await findings(connection))["dead letters"]
    assert (dead.state, dead.detail) == (Severity.WARN, "1 dead-lettered message, most in 'dead/t'")


async def test_lag(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The subscription that is furthest behind is named."""
    monkeypatch.setattr(facts, "GREAT_LAG", 1)
    await connection.execute("select nuncius.subscribe('t', 'sleeper', 'earliest')")
    for _ in range(2):
        await connection.execute("select nuncius.publish('t', 'x'::text)")
    found = (await findings(connection))["subscriptions"]
    assert found.state is Severity.WARN
    assert "'sleeper' of 't'" in found.detail


async def test_old_messages(connection: Connection) -> None:
    """A queue that nobody reads is named."""
    queue = await connection.fetchval("select queue_id from nuncius.create_queue('q')")
    await connection.execute("select nuncius.put_message($1, 0, 0, 0, 5, 'x'::text)", queue)
    assert (await findings(connection))["queues"].state is Severity.OK
    await connection.execute("update nuncius.messages set time_of_arrival = now() - interval '2 days'")
    found = (await findings(connection))["queues"]
    assert (found.state, found.detail) == (
        Severity.WARN,
        "1, the oldest message is in 'q' for more than a day",
    )


async def test_the_silent(connection: Connection) -> None:
    """Actors and nodes that have not been heard for long are counted."""
    await connection.execute("insert into nuncius.activity values ('producer', 1, now() - interval '1 h')")
    await connection.execute(
        "insert into nuncius.nodes (host, port, roles, last_heard)"
        " values ('h', 1, '{}', now() - interval '1 h')"
    )
    found = await findings(connection)
    assert found["activity"].state is Severity.WARN
    assert found["cluster"].detail == "1 of 1 nodes unreachable"
