"""A client whose connection breaks, stalls, or loses answers: everything is stored once, in order."""

import asyncio
import random
from functools import partial

import pytest

from broker.inside import everything, queue, start, until_waiting_for
from fix_proxy import Connecting, Proxy
from nuncius.broker import Broker
from nuncius.broker.model import Letter
from nuncius.client import AsyncClient, ConnectionLost, NotFound, NunciusError, Timeout
from nuncius.client.subscription import AsyncSubscription
from racing import until


async def read(subscription: AsyncSubscription, count: int) -> list[int]:
    """The next so many entries, as numbers."""
    seen: list[int] = []
    async with asyncio.timeout(60):
        async for entry in subscription:
            seen.append(int(entry.body))
            if len(seen) == count:
                break
    return seen


async def test_answers_that_are_lost(proxy: Proxy, through: Connecting, broker: Broker) -> None:
    """What was stored although its answer was lost is sent again, and is stored once."""
    client = await through()
    await client.create_queue("jobs")
    await client.publish("news", b"0")
    proxy.drop_answers()
    publishing = start(client.publish("news", b"1"))
    putting = start(client.put("jobs", b"1"))
    await until(lambda: stored(broker, 2))
    proxy.cut()
    proxy.flow()
    assert (await publishing).duplicate
    assert (await putting).duplicate
    assert await everything(broker, "news") == [b"0", b"1"]
    assert len(await client.browse("jobs")) == 1


async def stored(broker: Broker, entries: int) -> bool:
    (queue_info,) = await broker.queues.info()
    return len(await everything(broker, "news")) == entries and queue_info.depth == 1


async def test_requests_that_never_arrived(proxy: Proxy, through: Connecting, broker: Broker) -> None:
    """What never reached the node is sent when there is a connection again."""
    client = await through()
    await client.publish("news", b"0")
    proxy.stall()
    publishing = [start(client.publish("news", b"%d" % n)) for n in range(1, 5)]
    await asyncio.sleep(0)
    proxy.refuse()
    proxy.cut()
    later = start(client.publish("news", b"5"))
    before = proxy.connections
    await until(lambda: proxy.connections > before)
    proxy.flow()
    receipts = await asyncio.gather(*publishing, later)
    assert [receipt.offset for receipt in receipts] == [1, 2, 3, 4, 5]
    assert await everything(broker, "news") == [b"%d" % n for n in range(6)]


@pytest.mark.parametrize("seed", range(3))
async def test_exactly_once_over_many_breaks(
    proxy: Proxy, through: Connecting, broker: Broker, seed: int
) -> None:
    """However often and whenever the connection breaks, each entry and message is stored once, in order."""
    dice = random.Random(seed)
    client = await through(timeout=60)
    await client.create_queue("jobs")
    total = 600
    waiting = []

    def reached(point: int) -> bool:
        return proxy.forwarded >= point or len(answered) == 2 * total

    async def breaking() -> None:
        while len(answered) < 2 * total:
            await until(partial(reached, proxy.forwarded + dice.randrange(1_500)), 60)
            if dice.random() < 0.5:
                proxy.drop_answers()
                await until(lambda: proxy.dropped or len(answered) == 2 * total, 60)
            proxy.cut()
            proxy.flow()

    answered: list[object] = []
    breaker = start(breaking())
    for n in range(total):
        for each in (client.publish("news", b"%d" % n), client.put("jobs", b"%d" % n)):
            call = start(each)
            call.add_done_callback(answered.append)
            waiting.append(call)
        if n % 7 == 0:
            await asyncio.sleep(0)
        if n % 50 == 0:
            await waiting[-1]
    await asyncio.gather(*waiting)
    await breaker
    assert proxy.connections > 3
    assert await everything(broker, "news") == [b"%d" % n for n in range(total)]
    jobs = (await broker.queues.find("jobs")).queue_id
    found = await broker.queues.browse(jobs, limit=total + 1)
    assert [message.body for message in found] == [b"%d" % n for n in range(total)]


async def test_a_publisher_with_a_past(proxy: Proxy, through: Connecting, broker: Broker) -> None:
    """A publisher with a name of its own goes on counting where an earlier program stopped."""
    first = await through(publisher="press")
    await asyncio.gather(*(first.publish("news", b"%d" % n) for n in range(3)))
    await first.close()
    second = await through(publisher="press")
    receipts = await asyncio.gather(*(second.publish("news", b"%d" % n) for n in range(3, 6)))
    assert [receipt.offset for receipt in receipts] == [3, 4, 5]
    proxy.drop_answers()
    last = start(second.publish("news", b"6"))
    await until(lambda: proxy.dropped)
    proxy.cut()
    proxy.flow()
    assert (await last).duplicate
    assert await everything(broker, "news") == [b"%d" % n for n in range(7)]
    assert await broker.publishers.last_count("press", "topic", "news") == 7


async def test_a_past_that_is_learned_over_a_break(proxy: Proxy, through: Connecting) -> None:
    """What is handed in while a publisher's past is being learned waits for it, also over a break."""
    first = await through(publisher="press")
    await first.publish("news", b"0")
    second = await through(publisher="press")
    proxy.stall()
    calls = [start(second.publish("news", b"%d" % n)) for n in (1, 2)]
    await asyncio.sleep(0)
    proxy.cut()
    proxy.flow()
    assert [(await call).offset for call in calls] == [1, 2]


async def test_subscription_over_breaks(proxy: Proxy, through: Connecting) -> None:
    """A subscriber sees every entry once and in order, over reconnects that deliver some again."""
    reader, writer = await through(), await through(timeout=60)
    subscription = await reader.subscribe("news", "sue", prefetch=50)
    dice = random.Random(3)
    reading = start(read(subscription, 400))
    for n in range(400):
        await writer.publish("news", b"%d" % n)
        if dice.random() < 0.05:
            proxy.cut()
    assert await reading == list(range(400))
    assert proxy.connections > 5


async def test_delivered_again_after_a_break(proxy: Proxy, through: Connecting) -> None:
    """What was delivered but not confirmed comes again on the next connection, and is not seen twice."""
    client = await through()
    subscription = await client.subscribe("news", "sue", auto_confirm=False)
    await client.publish_batch("news", [b"0", b"1", b"2"])
    first = await subscription.next_batch(20)
    proxy.cut()
    await client.publish("news", b"3")
    second = await subscription.next_batch(20)
    assert [int(entry.body) for entry in [*first, *second]] == [0, 1, 2, 3]


async def test_a_topic_that_was_made_again_meanwhile(
    proxy: Proxy, through: Connecting, broker: Broker
) -> None:
    """Who was reading a topic that was deleted and made again meanwhile is told, and moves nobody's place."""
    client = await through()
    subscription = await client.subscribe("news", "sue", start="earliest")
    await client.publish_batch("news", [b"0", b"1"])
    assert len(await subscription.next_batch(20)) == 2
    proxy.refuse()
    proxy.cut()
    await broker.topics.delete("news")
    await broker.subscriptions.subscribe("news", "sue", start="earliest")
    await broker.topics.publish("news", [b"a", b"b", b"c"])
    proxy.flow()
    with pytest.raises(NotFound):
        await subscription.next_batch(20)
    await subscription.close()
    again = await client.subscribe("news", "sue")
    assert [entry.body for entry in await again.next_batch(20)] == [b"a", b"b", b"c"]


async def test_a_break_while_attaching(proxy: Proxy, through: Connecting) -> None:
    """A connection that breaks while a subscription begins does not end it."""
    client = await through()
    subscription = await client.subscribe("news", "sue")
    await client.publish("news", b"0")
    proxy.drop_answers()
    reading = start(subscription.next_batch(20))
    await until(lambda: proxy.dropped)
    proxy.cut()
    proxy.flow()
    assert [entry.body for entry in await reading] == [b"0"]


@pytest.mark.parametrize(
    "call", ["publish", "put", "take", "fetch", "ping", "subscribe", "request", "topics", "create_queue"]
)
async def test_everything_has_a_timeout(proxy: Proxy, through: Connecting, broker: Broker, call: str) -> None:
    """When the node does not answer, every call ends with Timeout."""
    client = await through(timeout=0.2, name="ann")
    await queue(broker)
    proxy.stall()
    calls = {
        "publish": lambda: client.publish("news", b"x"),
        "put": lambda: client.put("jobs", b"x"),
        "take": lambda: client.take("jobs", wait=0.1),
        "fetch": lambda: client.fetch("news"),
        "ping": client.ping,
        "subscribe": lambda: client.subscribe("news", "sue"),
        "request": lambda: client.request("jobs", b"x", timeout=0.1),
        "topics": client.topics,
        "create_queue": lambda: client.create_queue("more"),
    }
    async with asyncio.timeout(60):
        with pytest.raises(Timeout):
            await calls[call]()  # type: ignore[operator]


async def test_timeout_while_there_is_no_connection(proxy: Proxy, through: Connecting) -> None:
    """Calls that are made while no node can be reached wait for one, and not longer than they may."""
    client = await through(timeout=0.3)
    proxy.refuse()
    proxy.cut()
    with pytest.raises(Timeout):
        await client.publish("news", b"x")
    proxy.flow()
    await until(lambda: works(client))


async def works(client: AsyncClient) -> bool:
    try:
        await client.ping()
    except NunciusError:
        return False
    return True


async def test_what_must_not_be_repeated(proxy: Proxy, through: Connecting, broker: Broker) -> None:
    """A call that must not be carried out twice fails when the connection breaks: nobody knows."""
    await queue(broker)
    client = await through(name="ann")
    proxy.drop_answers()
    purging = start(client.purge_queue("jobs"))
    asking = start(client.request("jobs", b"question"))
    await until(lambda: proxy.dropped)
    await until_waiting_for(broker, 1)
    proxy.cut()
    proxy.flow()
    for call in (purging, asking):
        with pytest.raises(ConnectionLost):
            await call


async def test_request_and_reply_over_a_break(proxy: Proxy, through: Connecting, broker: Broker) -> None:
    """One who answers may lose its connection; the one who asks waits on its own."""
    await queue(broker)
    asker, answerer = await through(), await through()
    asking = start(asker.request("jobs", b"question"))
    request = await answerer.take("jobs", wait=20)
    assert request is not None
    await answerer.reply(request, b"answer")
    assert (await asking).body == b"answer"
    proxy.cut()
    asking = start(request_again(asker))
    request = await answerer.take("jobs", wait=20)
    assert request is not None
    await answerer.reply(request, b"again")
    assert (await asking).body == b"again"


async def request_again(client: AsyncClient) -> object:
    """Waits for the new connection, so that the question does not meet the break."""
    await client.ping()
    return await client.request("jobs", b"question")


async def test_taking_a_name_over_a_break(proxy: Proxy, through: Connecting, broker: Broker) -> None:
    """A client that loses its connection while it takes its temporary name takes it all the same."""
    await queue(broker)
    client, answerer = await through(), await through()
    proxy.drop_answers()
    asking = start(client.request("jobs", b"question"))
    await until(lambda: proxy.dropped)
    proxy.cut()
    proxy.flow()
    request = await answerer.take("jobs", wait=20)
    assert request is not None
    await answerer.reply(request, b"answer")
    assert (await asking).body == b"answer"


async def test_closing_without_a_connection(proxy: Proxy, through: Connecting, broker: Broker) -> None:
    """A client closes at once and without complaint when its node is gone."""
    await queue(broker)
    client = await through(timeout=20)
    with pytest.raises(Timeout):
        await client.request("jobs", b"x", timeout=0.01)
    subscription = await client.subscribe("news", "sue")
    reading = start(subscription.next_batch())
    await client.ping()
    proxy.refuse()
    proxy.cut()
    await until(lambda: proxy.clients == 0)
    async with asyncio.timeout(15):
        await client.close()
    reading.cancel()
    await asyncio.wait([reading])


async def test_the_next_address(proxy: Proxy, through: Connecting, broker: Broker) -> None:
    """With several addresses a client goes to the next when one does not answer."""
    del through
    async with asyncio.timeout(60):
        client = await AsyncClient.connect(f"nuncius://127.0.0.1:1,127.0.0.1:{proxy.port}")
        proxy.cut()
        await client.publish("news", b"x")
        await client.close()
    assert await everything(broker, "news") == [b"x"]


async def test_takes_that_shrink_while_there_is_no_connection(
    proxy: Proxy, through: Connecting, broker: Broker
) -> None:
    """Of several takes that wait for a connection to come back, one is cancelled: none is taken for it."""
    client = await through()
    jobs = await queue(broker)
    takings = [start(client.take("jobs", wait=60)) for _ in range(3)]
    await until_waiting_for(broker, jobs)
    proxy.refuse()
    proxy.cut()
    await until_waiting_for(broker, jobs, 0)
    takings[0].cancel()
    await until(takings[0].done)
    for n in range(3):
        await broker.queues.put_into_all([jobs], Letter(b"%d" % n))
    proxy.flow()
    assert [(await taking).body for taking in takings[1:]] == [b"0", b"1"]
    assert [message.body for message in await client.browse("jobs")] == [b"2"]
