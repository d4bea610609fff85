"""What a node counts: once each, by door and kind, with rates and latencies of the last minute."""

import pytest

from nuncius.broker import Broker, future
from nuncius.broker.caller import NODE, Caller
from nuncius.broker.model import Letter, Stored
from nuncius.broker.observe.counters import DELIVERED, MOST_QUEUES, Counters
from nuncius.broker.observe.counters_model import EDGES, quantile
from nuncius.store.calls.keys import APPEND, POST, Keys, Mention, WriteCall
from nuncius.store.calls.putting import PutCall


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def put(broker: Broker, queue_id: int, letters: list[Letter], caller: Caller = NODE) -> None:
    stored, done = future.new()
    broker.queues.put_soon(queue_id, letters, done, caller=caller)
    await stored


async def test_messages_are_counted(broker: Broker) -> None:
    """Published, put, taken, delivered, acknowledged and read: messages, not requests; and not failures."""
    queue = await broker.queues.create("q")
    await broker.topics.publish("t", [b"x", b"y"])
    await put(broker, queue.queue_id, [Letter(b"1"), Letter(b"2"), Letter(b"3")])
    assert len(await broker.queues.take(queue.queue_id, limit=100)) == 3
    assert await broker.queues.take(queue.queue_id, limit=100) == []
    subscription = await broker.subscriptions.subscribe("t", "s", start="earliest")
    reader = await broker.subscriptions.cursor(subscription)
    assert (await reader.next(10)).next_offset == 2
    confirmed, done = future.new()
    broker.positions.confirm_soon(subscription, 1, 2, done)
    await confirmed
    with pytest.raises(Exception, match="no queue"):
        await put(broker, 99, [Letter(b"x")])
    assert broker.counters.by_kind() == {
        "published": 2,
        "put": 3,
        "taken": 3,
        "delivered": 2,
        "acked": 1,
        "read": 2,
    }
    assert broker.counters.queues == {queue.queue_id: (3, 3)}
    assert broker.counters.totals["node", "put"] == 3


async def test_a_put_into_several_queues(broker: Broker) -> None:
    """A message counts once for each queue, and not again when the put is repeated."""
    ids = [(await broker.queues.create(name)).queue_id for name in "ab"]
    publisher = await broker.publishers.find("p", lasting=True)
    for _ in range(2):
        caller = Caller("native", "native-1")
        await broker.queues.put_into_all(ids, Letter(b"x"), publisher=publisher, count=1, caller=caller)
    assert broker.counters.totals["native", "put"] == 2


async def test_leases_are_deliveries(broker: Broker) -> None:
    """What is handed to a consumer who acknowledges is delivered; settling it is acknowledging it."""
    queue = await broker.queues.create("q")
    await put(broker, queue.queue_id, [Letter(b"1"), Letter(b"2")])
    leased, done = future.new()
    broker.queues.lease_soon(queue.queue_id, 0, done, limit=2)
    ids = [each.lease_id for each in await leased]
    settled, done = future.new()
    broker.leases.settle_soon(ids, done)
    await settled
    counts = broker.counters.by_kind()
    assert (counts["delivered"], counts["acked"], counts["taken"]) == (2, 2, 0)


async def test_exactly_once_pubsub_is_counted(broker: Broker) -> None:
    """A message under a count that is known is not counted again."""
    await broker.pubsub.subscribe("t", "s")
    for _ in range(2):
        turn, done = future.new()
        broker.pubsub.put_soon("t", "p", 1, b"x", done)
        await turn
    found, done = future.new()
    broker.pubsub.get_soon("t", "s", 0, done, wait=0)
    await found
    counts = broker.counters.by_kind()
    assert (counts["published"], counts["delivered"]) == (1, 1)


async def test_consumers_over_http_are_counted(broker: Broker) -> None:
    """Each message that a consumer with a number gets is a delivery."""
    await broker.topics.publish("t", [b"x", b"y"])
    number = await broker.actors.register_consumer("t")
    who = await broker.actors.consumers.find(str(number))
    await broker.consuming.consume(who, caller=Caller("http", "http-1"))
    assert broker.counters.totals["http", "delivered"] == 1


async def test_tribbles_are_published(broker: Broker) -> None:
    """A post is an entry of a topic, and counted as one; other changes of keys are not."""
    keys = Keys(broker.store)
    mention = Mention("galileo:posts", "galileo:1", "galileo", b"moons")
    for kind, key, said in ((POST, "galileo:1", mention), (APPEND, "galileo:follows", None)):
        answer, done = future.new()
        keys.write_soon(WriteCall(done, kind, 7, key, "kepler", said))
        await answer
    assert broker.counters.totals["tribbler", "published"] == 1


async def test_messages_count_under_the_door_of_their_caller(broker: Broker) -> None:
    """A batch holds messages of several doors, and each counts under its own."""
    placed: list[object] = []
    for door, bodies in (("stomp", 1), ("native", 2), ("native", 3), ("stomp", 4)):
        caller = Caller(door, f"{door}-1")
        broker.topics.publish_soon("t", [b"x"] * bodies, placed.append, caller=caller)
    await broker.topics.publish("t", [b"x"])
    published = {door: n for (door, kind), n in broker.counters.totals.items() if kind == "published"}
    assert published == {"stomp": 5, "native": 5, "node": 1}


async def test_rates_are_of_the_last_seconds() -> None:
    """Against the sample of so many seconds ago, or the oldest there is."""
    clock = Clock()
    counters = Counters(clock)
    counters.count(DELIVERED, NODE, 10)
    clock.now += 1
    assert counters.rates().messages == {("node", "delivered"): 10.0}
    await counters.sample()
    for _ in range(70):
        clock.now += 1
        counters.count(DELIVERED, NODE, 5)
        await counters.sample()
    assert counters.rates(10).messages == {("node", "delivered"): pytest.approx(5.0)}
    assert counters.rates().seconds == pytest.approx(60.0)
    clock.now += 600
    assert counters.rates(1).messages["node", "delivered"] == pytest.approx(0.0)


async def test_rates_of_queues_and_latencies(broker: Broker) -> None:
    """Queues with traffic have rates; procedures that worked have percentiles."""
    queue = await broker.queues.create("q")
    await put(broker, queue.queue_id, [Letter(b"x")])
    rates = broker.counters.rates()
    assert rates.queues[queue.queue_id][0] > 0
    assert rates.queues[queue.queue_id][1] == 0
    half, most, nearly_all = (quantile(rates.buckets["put and take"], share) for share in (0.5, 0.95, 0.99))
    assert 0 < half <= most <= nearly_all
    assert "lease" not in rates.buckets
    assert sum(broker.counters.procedures["put and take"].buckets) == 1


def test_queues_are_bounded() -> None:
    """A node does not remember more queues than it has room for."""
    counters = Counters()
    numbers = [*range(MOST_QUEUES + 5), 0]
    calls = [PutCall(lambda _: None, NODE, number, [Letter(b"x")], None, 0, 1) for number in numbers]
    counters.observer("put and take")(0.001, calls, [Stored((1,), 0)] * len(calls))
    assert len(counters.queues) == MOST_QUEUES
    assert counters.queues[0] == (2, 0)


def test_quantiles() -> None:
    """By the straight line within a bucket; what is beyond the last edge is called that."""
    buckets = [0] * (len(EDGES) + 1)
    assert quantile(buckets, 0.5) == 0.0
    buckets[3] = 10
    assert quantile(buckets, 0.5) == pytest.approx((EDGES[2] + EDGES[3]) / 2)
    assert quantile(buckets, 1.0) == pytest.approx(EDGES[3])
    buckets[-1] = 1000
    assert quantile(buckets, 0.99) == EDGES[-1]
    first = [4] + [0] * len(EDGES)
    assert quantile(first, 0.5) == pytest.approx(EDGES[0] / 2)
