"""Messages in hand: settled, released, and back in their queue when their consumer or its connection goes."""

import asyncio

import pytest

from broker.acknowledging import QUICK, gate_leases, held, lease_one, until_held
from broker.inside import put, queue, start, until_waiting_for
from fix_proxy import Connecting, Proxy
from nuncius.broker import Broker
from nuncius.broker.limits import Limits
from nuncius.client import (
    AsyncClient,
    AsyncLease,
    Closed,
    ConnectionLost,
    InvalidInput,
    LeaseLost,
    NotFound,
    Timeout,
)
from nuncius.store.driver import Connection
from nuncius.wire.packets import Packet
from racing import until


@pytest.fixture
def limits() -> Limits:
    """Failed messages are tried again soon."""
    return QUICK


async def next_lease(client: AsyncClient) -> AsyncLease:
    async with asyncio.timeout(20):
        lease = await client.lease("jobs", wait=60)
    assert lease is not None
    return lease


async def in_hand(connection: Connection) -> int:
    return sum(holder != 0 for holder, _ in await held(connection))


async def test_once_is_enough(client: AsyncClient) -> None:
    """What was settled or released cannot be settled or released again."""
    await client.create_queue("jobs")
    await client.put("jobs", "x")
    lease = await next_lease(client)
    await lease.release()
    for again in (lease.settle(), lease.release("no")):
        with pytest.raises(InvalidInput, match="before"):
            await again
    async with lease:
        pass  # nothing is left to be done


async def test_as_a_block(client: AsyncClient, broker: Broker, connection: Connection) -> None:
    """Leaving the block settles; leaving it by an exception releases, with the exception as the reason, and
    the exception passes."""
    await client.create_queue("jobs")
    await client.put("jobs", "x")
    with pytest.raises(ValueError, match="too hot"):
        async with await next_lease(client):
            raise ValueError("too hot")
    (failure,) = await broker.failures()
    assert (failure.reason, failure.attempts) == ("ValueError: too hot", 1)
    async with await next_lease(client) as lease:
        assert lease.attempts == 1
    assert await held(connection) == []


async def test_a_worker_that_is_cancelled(client: AsyncClient, broker: Broker) -> None:
    """Who is cancelled while it works gives its message back."""
    await client.create_queue("jobs")
    await client.put("jobs", "x")
    working = asyncio.Event()

    async def work() -> None:
        async with await next_lease(client):
            working.set()
            await asyncio.Event().wait()

    worker = start(work())
    await working.wait()
    worker.cancel()
    await asyncio.wait([worker])
    assert worker.cancelled()
    assert (await next_lease(client)).attempts == 1
    (failure,) = await broker.failures()
    assert failure.reason == "CancelledError"


async def test_as_they_come(client: AsyncClient) -> None:
    """`leases` yields messages in hand for ever."""
    await client.create_queue("jobs")
    seen = []
    await client.put_batch("jobs", ["a", "b"])
    async for lease in client.leases("jobs"):
        async with lease:
            seen.append(lease.message.text)
        if len(seen) == 2:
            await client.put("jobs", "c")
        if len(seen) == 3:
            break
    assert seen == ["a", "b", "c"]


async def test_many_consumers(client: AsyncClient, connection: Connection) -> None:
    """However many ask at once, none gets what another has, and everything is worked on once."""
    await client.create_queue("jobs")
    await client.put_batch("jobs", [str(n) for n in range(300)])
    seen: list[int] = []

    async def work() -> None:
        while (lease := await client.lease("jobs")) is not None:
            async with lease:
                seen.append(int(lease.message.text))

    await asyncio.gather(*(work() for _ in range(20)))
    assert sorted(seen) == list(range(300))
    assert await held(connection) == []


async def test_no_such_queue(client: AsyncClient) -> None:
    """It is said as for a take."""
    with pytest.raises(NotFound):
        await client.lease("nothing")


# Trouble


async def test_the_connection_breaks(proxy: Proxy, through: Connecting, broker: Broker) -> None:
    """After a reconnect an old lease cannot be settled, and the error says why; the message is another's."""
    await queue(broker)
    client, other = await through(), await through()
    await client.put("jobs", "x")
    lease = await next_lease(client)
    proxy.cut()
    await client.ping()
    with pytest.raises(LeaseLost, match="comes again"):
        await lease.settle()
    with pytest.raises(LeaseLost):
        await lease.release("no")
    with pytest.raises(LeaseLost):
        async with lease:
            pass
    with pytest.raises(RuntimeError):  # what went wrong in the block is of more interest
        async with lease:
            raise RuntimeError
    again = await next_lease(other)
    assert (again.attempts, again.origin) == (1, lease.origin)
    await again.settle()


async def test_it_breaks_while_settling(proxy: Proxy, through: Connecting, broker: Broker) -> None:
    """If the answer to a settle is lost, nobody knows, and that is said; here it had been settled."""
    await queue(broker)
    client = await through()
    await client.put("jobs", "x")
    lease = await next_lease(client)
    proxy.drop_answers()
    settling = start(lease.settle())
    await until(lambda: proxy.dropped)
    proxy.cut()
    proxy.flow()
    with pytest.raises(ConnectionLost):
        await settling
    assert await client.lease("jobs") is None


async def test_asked_again_over_a_break(
    proxy: Proxy, through: Connecting, broker: Broker, connection: Connection
) -> None:
    """A lease that waits goes on waiting on the next connection; one whose answer was lost is not lost."""
    jobs = await queue(broker)
    client = await through()
    waiting = start(client.lease("jobs", wait=60))
    await until_waiting_for(broker, jobs)
    proxy.drop_answers()
    await put(broker, jobs, b"x")
    await until(lambda: proxy.dropped)
    assert await in_hand(connection) == 1
    proxy.cut()
    proxy.flow()
    async with asyncio.timeout(20):
        lease = await waiting
    assert lease is not None
    assert (lease.message.text, lease.attempts) == ("x", 1)  # the node cannot know that nobody saw it
    await lease.settle()
    assert await held(connection) == []


@pytest.mark.parametrize("first", ["cancelled", "received"])
async def test_cancelled_when_it_comes(
    client: AsyncClient, broker: Broker, connection: Connection, first: str
) -> None:
    """What comes for somebody who has gone in that very moment is given back, as if nobody had had it."""
    jobs = await queue(broker)
    opened = gate_leases(broker)
    await put(broker, jobs, b"x")
    waiting = start(client.lease("jobs", wait=60))
    link = client._requester.link  # noqa: SLF001
    assert link is not None
    receive = link._on_packet  # noqa: SLF001

    def in_the_same_turn(packet: Packet) -> None:
        if first == "cancelled":
            waiting.cancel()
            receive(packet)
        else:
            receive(packet)
            waiting.cancel()

    await until_held(connection, 1)
    link._on_packet = in_the_same_turn  # noqa: SLF001
    opened.set()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert (await lease_one(broker, jobs)).attempts == 0


async def test_not_in_time(proxy: Proxy, through: Connecting, broker: Broker) -> None:
    """An answer that comes after its time is given back."""
    jobs = await queue(broker)
    client = await through(timeout=0.2)
    await client.put("jobs", "x")
    proxy.stall()
    with pytest.raises(Timeout):
        await client.lease("jobs")
    proxy.flow()
    one = await lease_one(broker, jobs)
    assert one.attempts == 0


async def test_closing(client: AsyncClient, broker: Broker) -> None:
    """A client that is closed lets go of what it has."""
    jobs = await queue(broker)
    await client.put("jobs", "x")
    lease = await next_lease(client)
    await client.close()
    assert (await lease_one(broker, jobs)).attempts == 1
    with pytest.raises((LeaseLost, Closed)):
        await lease.settle()
