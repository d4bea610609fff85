"""Asyncio subscriptions: what they keep in memory, how they outlast trouble, and how they end."""

import asyncio
from traceback import walk_tb
from typing import Any

import pytest

from fix_proxy import Connecting, Proxy
from nuncius.broker import Broker
from nuncius.client import AsyncClient, Closed, NotFound, SubscriptionEnded, Timeout, subscription
from nuncius.store.driver import Connection
from nuncius.wire import packets
from racing import until


def entries(first: int, *bodies: bytes) -> packets.Entries:
    return packets.Entries(1, 1, first, [0] * len(bodies), list(bodies))


async def test_what_comes_again_takes_no_room(client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that are delivered a second time are dropped, and do not count as kept."""
    monkeypatch.setattr(subscription, "BUFFERED_BYTES", 10)
    paused: list[object] = []
    monkeypatch.setattr(client, "pause", paused.append)
    reading = await client.subscribe("t", "sue", auto_confirm=False)
    reading.attached(1)
    for again in range(3):
        reading.received(entries(0, *[b"abc"] * again, b"abc"))
    batches = [await reading.next_batch() for _ in range(3)]
    assert [[(entry.offset, entry.body) for entry in batch] for batch in batches] == [
        [(n, b"abc")] for n in range(3)
    ]
    assert not paused
    reading.received(entries(3, b"abcdefghijk"))
    assert paused


def count_timeouts(client: AsyncClient, monkeypatch: pytest.MonkeyPatch, call: str) -> list[Timeout]:
    """Grows by the timeouts of a call."""
    timeouts: list[Timeout] = []
    original: Any = getattr(client, call)

    async def counted(*arguments: Any) -> None:
        try:
            await original(*arguments)
        except Timeout as error:
            timeouts.append(error)
            raise

    monkeypatch.setattr(client, call, counted)
    return timeouts


async def lag(broker: Broker) -> int:
    (state,) = await broker.subscriptions.list("news")
    return state.lag


async def test_a_confirm_that_times_out(
    proxy: Proxy, through: Connecting, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again until the node answers, and reading goes on meanwhile: Timeout says only that nothing
    came."""
    client = await through(timeout=0.2)
    reading = await client.subscribe("news", "sue")
    await client.publish("news", b"0")
    await reading.next_batch(20)
    timeouts = count_timeouts(client, monkeypatch, "confirm_place")
    proxy.stall()
    with pytest.raises(Timeout, match="nothing was published"):
        await reading.next_batch(0.05)  # and so the first entry is dealt with
    await until(lambda: timeouts)
    with pytest.raises(Timeout, match="nothing was published"):
        await reading.next_batch(0.05)
    proxy.flow()
    await broker.topics.publish("news", [b"1"])
    assert [entry.body for entry in await reading.next_batch(20)] == [b"1"]

    async def is_confirmed() -> bool:
        return await lag(broker) == 1

    await until(is_confirmed)


async def test_a_close_that_is_cancelled(proxy: Proxy, through: Connecting) -> None:
    """A client whose close is cancelled while it waits for the node has closed its connection."""
    client = await through(timeout=60)
    reading = await client.subscribe("news", "sue")
    await client.publish_batch("news", [b"0", b"1"])
    messages = aiter(reading)
    assert [(await anext(messages)).body, (await anext(messages)).body] == [b"0", b"1"]
    proxy.stall()
    closing = asyncio.ensure_future(client.close())
    await until(lambda: reading._closed)  # noqa: SLF001  (from here on it waits for its confirm)
    closing.cancel()
    await asyncio.wait([closing])
    proxy.flow()
    await until(lambda: proxy.clients == 0)


async def test_an_attach_that_times_out(
    proxy: Proxy,
    through: Connecting,
    broker: Broker,
    connection: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the node does not answer to a new Attach after a break, it is asked again until it does."""
    client = await through(timeout=0.2)
    reading = await client.subscribe("news", "sue")
    await client.publish("news", b"0")
    await reading.next_batch(20)
    timeouts = count_timeouts(client, monkeypatch, "attach")
    await connection.execute("begin; lock table nuncius.subscriptions")
    proxy.cut()
    await until(lambda: timeouts)
    with pytest.raises(Timeout, match="nothing was published"):
        await reading.next_batch(0.05)
    await connection.execute("rollback")
    await broker.topics.publish("news", [b"1"])
    assert [entry.body for entry in await reading.next_batch(20)] == [b"1"]


async def test_a_first_attach_within_the_time_of_the_caller(
    client: AsyncClient, broker: Broker, connection: Connection
) -> None:
    """`next_batch` waits for as long as it was told, also when the node takes longer to begin."""
    reading = await client.subscribe("news", "sue")
    await connection.execute("begin; lock table nuncius.subscriptions")
    with pytest.raises(Timeout, match="nothing was published"):
        await reading.next_batch(0.05)
    await connection.execute("rollback")
    await broker.topics.publish("news", [b"0"])
    assert [entry.body for entry in await reading.next_batch(20)] == [b"0"]


async def test_a_subscription_that_has_ended(client: AsyncClient, broker: Broker) -> None:
    """Reading it raises SubscriptionEnded, with the reason, a new one each time, so nothing piles up."""
    reading = await client.subscribe("news", "sue")
    await client.publish("news", b"0")
    await reading.next_batch(20)
    await broker.topics.delete("news")
    raised: list[SubscriptionEnded] = []
    for _ in range(5):
        with pytest.raises(SubscriptionEnded, match="subscription 'sue' of topic 'news'") as caught:
            await reading.next_batch(20)
        raised.append(caught.value)
    assert len({id(each) for each in raised}) == 5
    assert len({len(list(walk_tb(each.__traceback__))) for each in raised[1:]}) == 1
    assert isinstance(raised[0], NotFound)
    assert isinstance(raised[0].__cause__, NotFound)
    await reading.close()


async def test_a_subscription_that_is_closed(client: AsyncClient) -> None:
    """Reading it raises Closed, a new one each time."""
    reading = await client.subscribe("news", "sue")
    await reading.close()
    raised = []
    for _ in range(2):
        with pytest.raises(Closed) as caught:
            await reading.next_batch()
        raised.append(caught.value)
    assert raised[0] is not raised[1]


@pytest.mark.filterwarnings("error")
async def test_ways_to_subscribe(client: AsyncClient) -> None:
    """`async with` takes what `subscribe` returns, and closes the subscription; it may be awaited before, or
    made a task."""
    await client.publish_batch("news", [b"0", b"1"])
    async with client.subscribe("news", "ann", start="earliest") as reading:
        assert len(await reading.next_batch(20)) == 2
    with pytest.raises(Closed):
        await reading.next_batch()
    async with await client.subscribe("news", "bob", start="earliest") as reading:
        assert len(await reading.next_batch(20)) == 2
    task = asyncio.create_task(client.subscribe("news", "cleo", start="earliest"))
    assert len(await (await task).next_batch(20)) == 2


async def test_a_batch_that_was_not_processed(client: AsyncClient) -> None:
    """Closing in the middle of a batch confirms nothing of it, but of the entries before."""
    await client.publish_batch("news", [b"0", b"1", b"2"])
    async with client.subscribe("news", "ann", start="earliest") as reading:
        assert (await anext(aiter(reading))).body == b"0"
        assert [entry.body for entry in await reading.next_batch(20)] == [b"1", b"2"]
    assert (await client.subscriptions("news", "ann"))[0].lag == 2
    with pytest.raises(Closed):
        await reading.next_batch()


async def test_what_is_left_when_it_is_closed(client: AsyncClient) -> None:
    """A closed subscription returns no batch, not even of entries that had arrived."""
    await client.publish_batch("news", [b"0", b"1", b"2"])
    async with client.subscribe("news", "ann", start="earliest") as reading:
        assert (await anext(aiter(reading))).body == b"0"
    with pytest.raises(Closed):
        await reading.next_batch()
