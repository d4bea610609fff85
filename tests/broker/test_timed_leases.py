"""Leases for a time, through the broker: any node may be asked, and whoever goes leaves nothing behind."""

import asyncio
from typing import Any

import pytest

from broker.acknowledging import QUICK, gate_leases, held, lease_one, node, off_duty, returned, until_held
from broker.inside import put, queue, start, until_waiting_for
from nuncius.broker import Broker
from nuncius.broker.caller import Caller
from nuncius.broker.errors import InvalidInput, NoSuchQueue, NotHeld, StoreUnavailable
from nuncius.broker.limits import Limits
from nuncius.broker.model import Letter
from nuncius.store.driver import Connection

TIMED = -1


@pytest.fixture
def limits() -> Limits:
    """Failed messages are tried again soon."""
    return QUICK


async def test_any_node_may_be_asked(broker: Broker, second: Broker, connection: Connection) -> None:
    """What one node handed out is extended, released and settled by another."""
    jobs = await queue(broker)
    await put(broker, jobs, b"a", b"b")
    one, two = await broker.timed_leases.lease(jobs, seconds=60, limit=5)
    assert (one.message.body, one.attempts, two.message.body) == (b"a", 0, b"b")
    assert await second.timed_leases.lease(jobs, seconds=60) == []
    await second.timed_leases.extend(jobs, [one.lease_id, two.lease_id], 120)
    await second.timed_leases.settle(jobs, [one.lease_id])
    waiting = start(lease_one(broker, jobs))
    await second.timed_leases.release(jobs, [two.lease_id], reason="no")
    again = await waiting
    assert (again.message.body, again.attempts, again.origin) == (b"b", 1, two.origin)
    with pytest.raises(NotHeld, match=f"leases {one.lease_id}, {two.lease_id} are not held"):
        await broker.timed_leases.settle(jobs, [one.lease_id, two.lease_id])
    await broker.leases.settle([again.lease_id])
    assert await held(connection) == []


async def test_a_node_that_stops(dsn: str, broker: Broker) -> None:
    """A lease for a time is not ended by the end of the node that handed it out."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x")
    async with node(dsn, QUICK) as short:
        (one,) = await short.timed_leases.lease(jobs, seconds=60)
    await broker.leases.return_due()
    await broker.timed_leases.settle(jobs, [one.lease_id])


async def test_the_end_of_the_time(broker: Broker, second: Broker) -> None:
    """When its time is over, a message comes again, counted, to whoever waits, at whichever node."""
    await off_duty(broker, second)
    jobs = await queue(broker)
    await put(broker, jobs, b"x")
    (one,) = await broker.timed_leases.lease(jobs, seconds=0.001)
    waiting = start(lease_one(second, jobs))
    await returned(broker, 2)  # it failed, and it went back
    assert ((await waiting).attempts, (await waiting).origin) == (1, one.origin)
    for late in (
        broker.timed_leases.settle(jobs, [one.lease_id]),
        broker.timed_leases.release(jobs, [one.lease_id], reason="no"),
        second.timed_leases.extend(jobs, [one.lease_id], 60),
    ):
        with pytest.raises(NotHeld, match=f"lease {one.lease_id} is not held"):
            await late


async def test_wait_for_a_message(broker: Broker) -> None:
    """A lease waits for what it may see, and not longer than it was asked to."""
    jobs = await queue(broker)
    assert await broker.timed_leases.lease(jobs, seconds=60, wait=0.01) == []
    waiting = start(broker.timed_leases.lease(jobs, 7, seconds=60, wait=60))
    await until_waiting_for(broker, jobs)
    await put(broker, jobs, Letter(b"not yours", receiver=8), Letter(b"yours", receiver=7))
    (one,) = await waiting
    assert one.message.body == b"yours"


@pytest.mark.parametrize("turns", range(5))
async def test_gone_when_it_comes(broker: Broker, connection: Connection, turns: int) -> None:
    """Whenever the caller goes, before, at, or after the moment of its answer, nothing is left in its hands
    and nothing is counted."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x")
    opened = gate_leases(broker)
    waiting = start(broker.timed_leases.lease(jobs, seconds=3600))

    await until_held(connection, 1)
    opened.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    await until_held(connection, 0)
    assert (await lease_one(broker, jobs)).attempts == 0


async def test_a_store_that_goes_away(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a lease cannot be given its time, the caller is told, and the message goes back uncounted."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x")

    async def away(*_: Any) -> Any:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "query", away)
        with pytest.raises(StoreUnavailable):
            await broker.timed_leases.lease(jobs, seconds=60)
    await until_held(connection, 0)
    assert (await lease_one(broker, jobs)).attempts == 0


async def test_a_node_that_was_taken_for_dead(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that the node has lost before it could hand them out are not handed out."""
    jobs = await queue(broker)
    await put(broker, jobs, b"a", b"b")
    query = broker.store.query

    async def robbed(sql: str, *arguments: Any) -> Any:
        await connection.execute("update nuncius.leases set holder = 0, due_at = now() where message = 'a'")
        return await query(sql, *arguments)

    monkeypatch.setattr(broker.store, "query", robbed)
    (one,) = await broker.timed_leases.lease(jobs, seconds=60, limit=2)
    assert one.message.body == b"b"


async def test_wrong_input(broker: Broker) -> None:
    """Wrong numbers are refused, and an unknown queue is named."""
    jobs = await queue(broker)
    with pytest.raises(InvalidInput):
        await broker.timed_leases.lease(jobs, seconds=60, limit=0)
    with pytest.raises(InvalidInput):
        await broker.timed_leases.settle(jobs, [])
    with pytest.raises(InvalidInput):
        await broker.timed_leases.settle(jobs, list(range(1, 10_002)))
    with pytest.raises(NoSuchQueue):
        await broker.timed_leases.lease(999, seconds=60)
    with pytest.raises(NotHeld, match=r"leases 1, 2, .*, 100 and 400 more are not held"):
        await broker.timed_leases.settle(jobs, list(range(1, 501)))


async def test_counted(broker: Broker) -> None:
    """A settled lease counts as an acknowledged message, under the door of the caller."""
    jobs = await queue(broker)
    await put(broker, jobs, b"a", b"b")
    ids = [one.lease_id for one in await broker.timed_leases.lease(jobs, seconds=60, limit=2)]
    await broker.timed_leases.settle(jobs, ids, caller=Caller("http", "http-1"))
    assert broker.counters.totals["http", "acked"] == 2
