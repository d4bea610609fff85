"""The asyncio client, against a real node."""

import asyncio
from typing import Any

import pytest

from broker.inside import queue, start, until_waiting_for
from native_peer import open_door
from nuncius.broker import Broker
from nuncius.client import (
    AlreadyExists,
    AsyncClient,
    CannotConnect,
    Closed,
    Entry,
    InvalidInput,
    NotFound,
    Refused,
    Timeout,
)
from racing import until


async def entries(client: AsyncClient, topic: str, partition: int = 1) -> list[bytes]:
    """Everything in a partition."""
    found: list[bytes] = []
    while page := await client.fetch(topic, partition, len(found), 1000):
        found += [entry.body for entry in page]
    return found


# Topics


async def test_publish_and_fetch(client: AsyncClient) -> None:
    """A published entry has an offset; fetched, it is what it was."""
    receipt = await client.publish("news", "héllo", key="k", headers={"a": "b"})
    assert (receipt.partition, receipt.offset, receipt.duplicate) == (1, 0, False)
    (entry,) = await client.fetch("news")
    assert (entry.text, entry.key, entry.headers, entry.offset) == ("héllo", "k", {"a": "b"}, 0)
    assert entry.time.tzinfo is not None
    assert await client.fetch("news", offset=1) == []


async def test_publish_many_at_once(client: AsyncClient) -> None:
    """Publishes that are started together are stored in their order, each with its own receipt."""
    started = [client.publish("news", b"%d" % n) for n in range(500)]
    receipts = await asyncio.gather(*started)
    assert [r.offset for r in receipts] == list(range(500))
    assert await entries(client, "news") == [b"%d" % n for n in range(500)]


async def test_very_many_at_once(client: AsyncClient) -> None:
    """However many are started in one breath, all are stored."""
    receipts = await asyncio.gather(*(client.publish("news", b"x") for _ in range(25_000)))
    assert sorted(r.offset or 0 for r in receipts) == list(range(25_000))


async def test_large_ones_at_once(client: AsyncClient) -> None:
    """However large together, what is started in one breath is stored."""
    body = b"x" * (7 << 20)
    receipts = await asyncio.gather(*(client.publish("news", body) for _ in range(8)))
    assert [r.offset for r in receipts] == list(range(8))


async def test_batches(client: AsyncClient) -> None:
    """A batch is one operation, with keys and headers an entry."""
    await client.create_topic("news", partitions=3)
    receipts = await client.publish_batch(
        "news", [b"a", "b", b"c"], keys=["x", None, "y"], headers=[None, {"h": "1"}, None]
    )
    assert len(receipts) == 3
    found = {}
    for partition in (1, 2, 3):
        for entry in await client.fetch("news", partition):
            found[entry.body] = (entry.key, entry.headers)
    assert found == {b"a": ("x", {}), b"b": (None, {"h": "1"}), b"c": ("y", {})}
    with pytest.raises(InvalidInput):
        await client.publish_batch("news", [])
    with pytest.raises(InvalidInput):
        await client.publish_batch("news", [b"a"], keys=["x", "y"])


async def test_an_empty_key(client: AsyncClient) -> None:
    """An empty key is a key, and none is none."""
    await client.publish("news", b"a", key="")
    await client.publish_batch("news", [b"b", b"c"], keys=["", None])
    assert [entry.key for entry in await client.fetch("news")] == ["", "", None]


async def test_order_between_single_and_batch(client: AsyncClient) -> None:
    """What is handed in before is stored before, whichever way."""
    first = client.publish("news", b"1")
    batch = start(client.publish_batch("news", [b"2", b"3"]))
    await asyncio.sleep(0)
    last = client.publish("news", b"4")
    await asyncio.gather(first, batch, last)
    assert await entries(client, "news") == [b"1", b"2", b"3", b"4"]


async def test_a_bad_one_does_not_hurt_its_neighbours(client: AsyncClient) -> None:
    """Independent calls of one breath succeed or fail by themselves."""
    first = client.publish("news", b"0")
    odd: list[dict[str, Any]] = [{"key": "a\0b"}, {"key": "k" * 5000}, {"headers": {"a": "\0"}}]
    for options in [*odd, {"headers": {"a": 1}}, {"headers": {"a": "x" * 100_000}}]:
        with pytest.raises(InvalidInput):
            await client.publish("news", b"bad", **options)
    last = client.publish("news", b"1")
    assert [(await each).offset for each in (first, last)] == [0, 1]


async def test_a_bad_put_does_not_hurt_its_neighbours(client: AsyncClient) -> None:
    """The same for messages: a wrong priority is one message's affair."""
    await client.create_queue("jobs")
    first = client.put("jobs", b"first")
    with pytest.raises(InvalidInput):
        await client.put("jobs", b"bad", priority=11)
    with pytest.raises(InvalidInput):
        await client.put("jobs", b"bad", receiver=-1)
    assert not (await first).duplicate
    assert len(await client.browse("jobs")) == 1


async def test_looking_after_topics(client: AsyncClient) -> None:
    """Topics are created, listed, kept for a while, purged and deleted."""
    await client.create_topic("news", partitions=2)
    with pytest.raises(AlreadyExists):
        await client.create_topic("news")
    await client.publish("news", b"x", partition=2)
    await client.grow_topic("news", 3)
    await client.set_retention("news", "time", seconds=60)
    (state,) = await client.topics("news")
    assert (state.retention, state.retention_seconds, state.entries) == ("time", 60, 1)
    assert len(state.partitions) == 3
    assert await client.purge_topic("news") == 1
    await client.delete_topic("news")
    assert await client.topics() == []
    with pytest.raises(NotFound):
        await client.delete_topic("news")
    with pytest.raises(Refused):
        await client.publish("news", b"x", partition=7)


# Subscriptions


async def test_subscription(client: AsyncClient) -> None:
    """Iterating over a subscription gives entries in order and confirms them."""
    subscription = await client.subscribe("news", "sue")
    await client.publish_batch("news", [b"%d" % n for n in range(100)])
    seen = []
    async for entry in subscription:
        seen.append(int(entry.body))
        if len(seen) == 100:
            break
    await subscription.close()
    assert seen == list(range(100))
    (state,) = await client.subscriptions("news")
    assert state.lag <= 1


async def test_goes_on_where_it_was_confirmed(client: AsyncClient) -> None:
    """Without automatic confirmation reading goes on after the last entry that was confirmed."""
    await client.publish_batch("news", [b"0", b"1", b"2", b"3"])
    async with await client.subscribe("news", "sue", start="earliest", auto_confirm=False) as first:
        batch = await first.next_batch(10)
        assert [entry.body for entry in batch] == [b"0", b"1", b"2", b"3"]
        await first.confirm(batch[1])
    async with await client.subscribe("news", "sue") as second:
        assert [entry.body for entry in await second.next_batch(10)] == [b"2", b"3"]
        with pytest.raises(Timeout):
            await second.next_batch(0.05)


async def test_a_small_prefetch(client: AsyncClient) -> None:
    """Any prefetch works, also one of 1, over several partitions."""
    await client.create_topic("news", partitions=3)
    subscription = await client.subscribe("news", "sue", prefetch=1)
    for n in range(30):
        await client.publish("news", b"%d" % n, partition=1 + n % 3)
    seen: dict[int, list[Entry]] = {}
    async with asyncio.timeout(60):
        async for entry in subscription:
            seen.setdefault(entry.partition, []).append(entry)
            if sum(map(len, seen.values())) == 30:
                break
    assert all([e.offset for e in found] == list(range(10)) for found in seen.values())


async def test_more_than_is_buffered(client: AsyncClient) -> None:
    """A subscriber that is slower than its topic gets everything, in order."""
    subscription = await client.subscribe("news", "sue")
    for n in range(12):
        await client.publish_batch("news", [bytes([n]) * 1_000_000] * 5)
    count = 0
    async with asyncio.timeout(60):
        async for entry in subscription:
            assert entry.body[0] == count // 5
            count += 1
            if count == 60:
                break


async def test_two_subscriptions_of_one_client(client: AsyncClient) -> None:
    """A client may read several subscriptions at a time."""
    one, two = await client.subscribe("a", "sue"), await client.subscribe("b", "sue")
    await client.publish("a", b"for a")
    await client.publish("b", b"for b")
    both = await asyncio.gather(one.next_batch(10), two.next_batch(10))
    assert [batch[0].body for batch in both] == [b"for a", b"for b"]


async def test_the_end_of_a_subscription(client: AsyncClient) -> None:
    """Who reads a subscription that is ended elsewhere gets an error."""
    subscription = await client.subscribe("news", "sue")
    reading = start(subscription.next_batch(10))
    await client.ping()
    await client.unsubscribe("news", "sue")
    with pytest.raises(NotFound):
        await reading


async def test_a_read_that_was_cancelled_as_it_began(client: AsyncClient) -> None:
    """Who gives up on the first entries before delivery begins may ask for them again."""
    subscription = await client.subscribe("news", "sue")
    await client.publish("news", b"x")
    reading = start(subscription.next_batch())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert [entry.body for entry in await subscription.next_batch(20)] == [b"x"]


async def test_closing_ends_a_reader(client: AsyncClient) -> None:
    """Who waits for entries of a subscription that is closed is told so."""
    subscription = await client.subscribe("news", "sue")
    reading = start(subscription.next_batch())
    await client.ping()
    await subscription.close()
    with pytest.raises(Closed):
        await reading


async def test_subscribing_again(client: AsyncClient) -> None:
    """Subscribe, read, unsubscribe, and the same again under the same name."""
    for _ in range(3):
        subscription = await client.subscribe("news", "sue")
        await client.publish("news", b"x")
        assert len(await subscription.next_batch(10)) == 1
        await subscription.close()
        await client.unsubscribe("news", "sue")


# Queues


async def test_put_and_take(client: AsyncClient) -> None:
    """Messages are taken by priority or by age, and None says that there is none."""
    await client.create_queue("jobs")
    low = await client.put("jobs", "low", priority=1, headers={"a": "b"})
    await client.put("jobs", b"high", priority=9)
    first = await client.take("jobs")
    assert first is not None
    assert (first.body, first.priority, first.queue) == (b"high", 9, "jobs")
    second = await client.take("jobs", mode="time")
    assert second is not None
    assert ((second.message_id,), second.headers) == (low.message_ids, {"a": "b"})
    assert await client.take("jobs") is None
    assert await client.take("jobs", wait=0.05) is None
    with pytest.raises(InvalidInput):
        await client.take("jobs", mode="random")
    with pytest.raises(NotFound):
        await client.put("nothing", b"x")


async def test_take_waits(client: AsyncClient, broker: Broker) -> None:
    """A take may wait for a message."""
    jobs = await queue(broker)
    taking = start(client.take("jobs", wait=60))
    await until_waiting_for(broker, jobs)
    await client.put("jobs", b"x")
    message = await taking
    assert message.body == b"x"


async def test_a_cancelled_take_takes_nothing(client: AsyncClient, broker: Broker) -> None:
    """A take that is not waited for any more leaves the messages that come later alone."""
    jobs = await queue(broker)
    taking = start(client.take("jobs", wait=60))
    await until_waiting_for(broker, jobs)
    taking.cancel()
    await until_waiting_for(broker, jobs, 0)
    await client.put("jobs", b"x")
    assert len(await client.browse("jobs")) == 1


async def test_takes_together(client: AsyncClient, broker: Broker) -> None:
    """Takes that are started together get a message each, in order, as long as there are some."""
    await queue(broker)
    await client.put_batch("jobs", [b"%d" % n for n in range(250)])
    found = await asyncio.gather(*(client.take("jobs") for _ in range(260)))
    assert [message.body for message in found if message is not None] == [b"%d" % n for n in range(250)]
    assert found[250:] == [None] * 10


async def test_those_who_got_nothing_wait_on(client: AsyncClient, broker: Broker) -> None:
    """Of takes that wait together each is answered by a message of its own, whenever that comes."""
    jobs = await queue(broker)
    takings = [start(client.take("jobs", wait=60)) for _ in range(3)]
    await until_waiting_for(broker, jobs)
    for n in range(3):
        await client.put("jobs", b"%d" % n)
        assert (await takings[n]).body == b"%d" % n
    assert await client.browse("jobs") == []


async def test_one_of_several_takes_is_cancelled(client: AsyncClient, broker: Broker) -> None:
    """It takes nothing; those with whom it waited go on, and leave the rest alone."""
    jobs = await queue(broker)
    takings = [start(client.take("jobs", wait=60)) for _ in range(3)]
    await until_waiting_for(broker, jobs)
    takings[0].cancel()
    await until(takings[0].done)
    await client.put_batch("jobs", [b"0", b"1", b"2"])
    assert [(await taking).body for taking in takings[1:]] == [b"0", b"1"]
    assert [message.body for message in await client.browse("jobs")] == [b"2"]


async def test_a_take_cancelled_before_it_was_sent(client: AsyncClient, broker: Broker) -> None:
    """Nobody asks for it."""
    await queue(broker)
    await client.put_batch("jobs", [b"0", b"1"])
    takings = [start(client.take("jobs")) for _ in range(2)]
    asyncio.get_running_loop().call_soon(takings[0].cancel)
    assert (await takings[1]).body == b"0"
    assert [message.body for message in await client.browse("jobs")] == [b"1"]


async def test_takes_of_large_messages(client: AsyncClient) -> None:
    """Everybody who takes gets a message while there are some, however many go into one answer."""
    await client.create_queue("jobs")
    for _ in range(7):
        await client.put("jobs", b"x" * (3 << 20))
    found = await asyncio.gather(*(client.take("jobs") for _ in range(9)))
    assert sum(message is not None for message in found) == 7


async def test_a_waiting_take_of_a_deleted_queue(client: AsyncClient, broker: Broker) -> None:
    """Who waits for a message of a queue is told when it is deleted."""
    jobs = await queue(broker)
    takings = [start(client.take("jobs", wait=600)), start(client.lease("jobs", wait=600))]
    await until_waiting_for(broker, jobs, 2)
    await client.delete_queue("jobs")
    for taking in takings:
        with pytest.raises(NotFound, match="there is no queue"):
            await asyncio.wait_for(taking, 60)


async def test_what_cannot_be_sent(client: AsyncClient, broker: Broker) -> None:
    """A number or a text that the protocol has no word for is refused, and the client goes on."""
    await queue(broker)
    with pytest.raises(InvalidInput, match="cannot be sent"):
        await client.browse("jobs", after=1 << 70)
    with pytest.raises(InvalidInput, match="cannot be sent"):
        await client.publish("\udcff", "x")
    assert await client.browse("jobs") == []


async def test_a_name_that_cannot_be_sent(broker: Broker) -> None:
    """A client whose name is no text does not connect."""
    async with open_door(broker) as (_, port):
        with pytest.raises(InvalidInput, match="cannot be sent"):
            await AsyncClient(f"nuncius://127.0.0.1:{port}", name="\udcff").open()


async def test_put_into_no_queue(client: AsyncClient) -> None:
    """A message goes into at least one queue."""
    with pytest.raises(InvalidInput, match="at least one queue"):
        client.put([], b"x")


async def test_takes_of_what_does_not_exist(client: AsyncClient) -> None:
    """Everybody is told."""
    found = await asyncio.gather(*(client.take("nothing") for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in found] == [NotFound] * 3


async def test_several_queues(client: AsyncClient) -> None:
    """A message for several queues goes into all of them or none."""
    for name in ("a", "b"):
        await client.create_queue(name)
    receipt = await client.put(["a", "b"], b"x")
    assert len(receipt.message_ids) == 2
    with pytest.raises(NotFound):
        await client.put(["a", "nothing"], b"y")
    assert [len(await client.browse(name)) for name in ("a", "b")] == [1, 1]


async def test_several_queues_among_others(client: AsyncClient) -> None:
    """Messages for one queue and for several, handed in without waiting, are all stored, in order."""
    for name in ("a", "b"):
        await client.create_queue(name)
    puts = []
    for n in range(0, 60, 3):
        puts.append(client.put("a", b"%d" % n))
        puts.append(start(client.put(["a", "b"], b"%d" % (n + 1))))
        await asyncio.sleep(0)
        puts.append(client.put("a", b"%d" % (n + 2)))
    receipts = await asyncio.gather(*puts)
    assert not any(receipt.duplicate for receipt in receipts)
    found = await client.take_batch("a", 100, mode="time")
    assert [int(message.body) for message in found] == list(range(60))
    assert len(await client.take_batch("b", 100)) == 20


async def test_put_batch(client: AsyncClient) -> None:
    """A batch of messages is one operation."""
    await client.create_queue("jobs")
    receipts = await client.put_batch("jobs", [b"a", b"b", b"c"], priority=3)
    taken = await client.take_batch("jobs", 10)
    assert [(m.message_id,) for m in taken] == [r.message_ids for r in receipts]
    assert {m.priority for m in taken} == {3}


async def test_request_and_reply(client: AsyncClient, broker: Broker) -> None:
    """A request waits for its answer; nobody answers: Timeout."""
    await queue(broker)
    asking = start(client.request("jobs", b"question", headers={"a": "b"}))
    request = await client.take("jobs", wait=20)
    assert request is not None
    assert request.headers == {"a": "b"}
    await client.reply(request, b"answer")
    assert (await asking).body == b"answer"
    with pytest.raises(Timeout):
        await client.request("jobs", b"question", timeout=0.05)


async def test_many_requests(client: AsyncClient, broker: Broker) -> None:
    """Many requests at a time each get their own answer."""
    await queue(broker)
    asking = [start(client.request("jobs", b"%d" % n)) for n in range(30)]
    for _ in range(30):
        request = await client.take("jobs", wait=20)
        assert request is not None
        await client.reply(request, b"re " + request.body)
    assert [(await each).body for each in asking] == [b"re %d" % n for n in range(30)]


async def test_looking_after_queues(client: AsyncClient) -> None:
    """Queues are created, listed, purged and deleted."""
    number = await client.create_queue("jobs")
    with pytest.raises(AlreadyExists):
        await client.create_queue("jobs")
    await client.put_batch("jobs", [b"a", b"b"])
    (state,) = await client.queues()
    assert (state.queue_id, state.name, state.depth) == (number, "jobs", 2)
    assert await client.purge_queue("jobs") == 2
    await client.delete_queue("jobs")
    assert await client.queues() == []


# The client itself


async def test_status_and_ping(client: AsyncClient) -> None:
    """The node answers how it is."""
    assert 0 < await client.ping() < 20
    assert (await client.status())["queues"] == 0


async def test_names(client: AsyncClient, broker: Broker) -> None:
    """A client with a name can be addressed; one without gets a name when it needs one, for a while."""
    await queue(broker)
    with pytest.raises(NotFound):
        await client.find_client("ann")
    assert client.client_id == 0
    with pytest.raises(Timeout):
        await client.request("jobs", b"x", timeout=0.05)
    assert client.client_id > 0


async def test_closing(broker: Broker, client: AsyncClient) -> None:
    """After closing nothing works, and what was pending is told so."""
    await queue(broker)
    taking = start(client.take("jobs", wait=60))
    await until_waiting_for(broker, 1)
    await client.close()
    with pytest.raises(Closed):
        await taking
    with pytest.raises(Closed):
        await client.ping()
    with pytest.raises(Closed):
        await client.publish("news", b"x")
    with pytest.raises(Closed):
        await client.open()
    await client.close()
    await until(lambda: broker.pressure.level == 0)


async def test_nobody_there() -> None:
    """When no node can be reached, connecting says so; a bad address is told apart."""
    with pytest.raises(CannotConnect):
        await AsyncClient.connect("nuncius://127.0.0.1:1", timeout=5)
    for url in ("http://x", "nuncius://", "nuncius://host:0", "nuncius://host:x"):
        with pytest.raises(InvalidInput):
            AsyncClient(url)


async def test_too_large(client: AsyncClient) -> None:
    """A body beyond the node's limit is refused before it is sent."""
    with pytest.raises(InvalidInput, match="at most"):
        await client.publish("news", b"x" * ((8 << 20) + 1))
