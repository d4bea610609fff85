"""Consuming one message at a time: nothing twice, nothing missed, and no false "nothing", whoever reads."""

import asyncio
import time

import pytest

from broker.acknowledging import asked, gate_fetches
from nuncius.broker import Broker
from nuncius.broker.background.actors import NoSuchConsumer, NumberedConsumer
from nuncius.broker.delivery import consuming, pull_one
from nuncius.broker.model import Topic
from nuncius.store.calls.fetching import FetchCall
from nuncius.store.calls.moving import ELSEWHERE, MOVED, MoveCall, advance
from nuncius.store.calls.publishing import PublishCall
from nuncius.store.driver import Connection
from nuncius.store.errors import StoreUnavailable
from racing import terminate, until, until_somebody_waits


class Away:
    """The store of a partition does not answer."""

    def __init__(self, partition_id: int, answer: object = StoreUnavailable("the broker is away")) -> None:
        self._partition_id = partition_id
        self._answer = answer

    def publish(self, call: PublishCall, topic: Topic) -> bool:
        del call, topic
        return False

    def fetch(self, call: FetchCall) -> bool:
        if call.partition_id != self._partition_id:
            return False
        self.find(call)
        return True

    def find(self, call: FetchCall) -> None:
        call.done(self._answer)


async def consumer(broker: Broker, topic: str = "t") -> NumberedConsumer:
    number = await broker.actors.register_consumer(topic)
    return await broker.actors.consumers.find(str(number))


async def publish(broker: Broker, count: int, topic: str = "t") -> list[bytes]:
    bodies = [b"%d" % n for n in range(count)]
    for body in bodies:
        await broker.topics.publish(topic, [body])
    return bodies


async def drain(broker: Broker, who: NumberedConsumer, readers: int = 8) -> list[bytes]:
    """Everything there is, with several requests at a time; ends when one finds nothing."""
    taken: list[bytes] = []

    async def read() -> None:
        while (body := await broker.consuming.consume(who)) is not None:
            taken.append(body)

    await asyncio.gather(*(read() for _ in range(readers)))
    return taken


@pytest.mark.parametrize("partitions", [1, 5])
async def test_two_nodes_read_for_one_consumer(broker: Broker, second: Broker, partitions: int) -> None:
    """Each message is handed out once, by one of them."""
    await broker.topics.create("t", partitions)
    await broker.topics.publish("t", [b"%d" % n for n in range(100)], keys=[str(n) for n in range(100)])
    who = await consumer(broker)
    halves = await asyncio.gather(drain(broker, who), drain(second, who))
    assert sorted(halves[0] + halves[1], key=int) == [b"%d" % n for n in range(100)]


async def test_no_false_nothing(broker: Broker, second: Broker) -> None:
    """A message that was acknowledged at one node is found at another at once."""
    await broker.topics.create("t", 3)
    who = await consumer(broker)
    for number in range(30):
        assert await second.consuming.consume(who) is None
        await broker.topics.publish("t", [b"%d" % number])
        assert await second.consuming.consume(who) == b"%d" % number


async def test_an_older_fetch_is_not_shared(
    broker: Broker, second: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that is committed while another reader's fetch is under way is found, though the node has
    not heard of it; so it is by a member of a group."""
    await broker.topics.create("t")
    who = await consumer(broker)
    reader = await broker.subscriptions.cursor(await broker.subscriptions.subscribe("t", "sue"))
    member = await broker.groups.join("t", "sue", "m", 60)
    monkeypatch.setattr(broker.signals, "raise_for", lambda _: None)
    gate = gate_fetches(broker)
    looking = asyncio.ensure_future(reader.look(10))
    await until(lambda: asked(broker))
    await second.topics.publish("t", [b"x"])
    consuming = asyncio.ensure_future(broker.consuming.consume(who))
    reading = asyncio.ensure_future(broker.groups.read(member, 10))
    await until(lambda: len(broker._tails._under_way) == 3)  # noqa: SLF001
    gate.set()
    assert await consuming == b"x"
    (piece,) = (await reading).entries
    assert piece.entries.bodies == [b"x"]
    await looking


async def test_a_partition_that_is_added_is_read_from_its_start(broker: Broker, second: Broker) -> None:
    """While others still have something, and whichever node added it."""
    await broker.topics.create("t")
    who = await consumer(broker)
    await publish(broker, 50)
    assert await broker.consuming.consume(who) == b"0"
    await second.topics.grow("t", 2)
    await second.topics.publish("t", [b"new"], partition=2)

    async def found() -> bool:
        return await broker.consuming.consume(who) == b"new"

    for _ in range(48):
        if await found():
            break
    else:
        raise AssertionError("it was not read in turn")


async def test_a_partition_that_was_empty_is_not_starved(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its turn again soon after something came, though others never run dry."""
    monkeypatch.setattr(pull_one, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(pull_one, "LOOK_SECONDS_EACH", 0.0)
    await broker.topics.create("t", 2)
    who = await consumer(broker)
    await broker.topics.publish("t", [b"%d" % n for n in range(1000)], partition=1)
    assert await broker.consuming.consume(who) == b"0"
    await broker.topics.publish("t", [b"other"], partition=2)
    for _ in range(900):  # the look takes its time, the others have enough for longer
        if await broker.consuming.consume(who) == b"other":
            return
    pytest.fail("the partition had no turn")


async def test_retention_passes_a_consumer(broker: Broker, second: Broker) -> None:
    """What was purged is not handed out, though it was read ahead; what comes after is."""
    await publish(broker, 10)
    who = await consumer(broker)
    assert await broker.consuming.consume(who) == b"0"
    await second.topics.purge("t")
    await second.topics.publish("t", [b"after"])
    assert await broker.consuming.consume(who) == b"after"
    assert await broker.consuming.consume(who) is None


async def test_a_consumer_that_ends(broker: Broker) -> None:
    """Its requests fail, the ones that wait too."""
    await publish(broker, 3)
    who = await consumer(broker)
    assert await broker.consuming.consume(who) == b"0"
    await broker.subscriptions.unsubscribe("t", f"http-consumer-{who.consumer_id}")
    with pytest.raises(NoSuchConsumer):
        await broker.consuming.consume(who)
    other = await consumer(broker)
    assert await broker.consuming.consume(other) == b"0"
    await broker.topics.delete("t")
    with pytest.raises(NoSuchConsumer):
        await broker.consuming.consume(other)


async def test_the_store_breaks(broker: Broker, observer: Connection) -> None:
    """When connections break again and again, nothing is handed out twice, and nothing is missed."""
    await publish(broker, 200)
    who = await consumer(broker)
    taken: list[bytes] = []

    async def read() -> None:
        while (body := await broker.consuming.consume(who)) is not None:
            taken.append(body)

    readers = [asyncio.ensure_future(read()) for _ in range(4)]
    while len(taken) < 150:
        await terminate(observer, "nuncius advance")
        before = len(taken)
        await until(lambda before=before: len(taken) > before or all(each.done() for each in readers))  # type: ignore[misc]
    await asyncio.gather(*readers)
    assert sorted(taken, key=int) == [b"%d" % n for n in range(200)]


async def test_the_store_breaks_while_another_node_was_faster(
    broker: Broker, second: Broker, connection: Connection, observer: Connection
) -> None:
    """A message that another node has handed out is not handed out again by one that does not know it yet,
    though it has to ask twice."""
    await publish(broker, 3)
    who = await consumer(broker)
    assert await broker.consuming.consume(who) == b"0"
    assert await second.consuming.consume(who) == b"1"
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock(78021, $1)", who.subscription_id)
        waiting = asyncio.ensure_future(broker.consuming.consume(who))
        await until_somebody_waits(observer, "nuncius advance%")
        await terminate(observer, "nuncius advance%")
    assert await waiting == b"2"


async def test_an_answer_that_was_lost(broker: Broker, connection: Connection) -> None:
    """Who asks again has moved the place the first time, and nobody else has, however far it is by now."""
    await publish(broker, 3)
    who = await consumer(broker)
    (partition_id,) = (await broker.topics.existing("t")).partition_ids

    def call(offset: int) -> MoveCall:
        return MoveCall(lambda _: None, None, who.subscription_id, partition_id, offset + 1)

    first, same, next_one = call(0), call(0), call(1)
    assert await advance(connection, [first], True) == [MOVED]
    assert await advance(connection, [same], True) == [ELSEWHERE]
    assert await advance(connection, [next_one], True) == [MOVED]
    assert await advance(connection, [first], True) == [MOVED]
    assert await advance(connection, [same], True) == [ELSEWHERE]
    assert await drain(broker, who) == [b"2"]


async def test_somebody_holds_the_place(broker: Broker, connection: Connection) -> None:
    """While a transaction elsewhere holds a consumer's lock, others are served; then it is, too."""
    await publish(broker, 2)
    one, two = await consumer(broker), await consumer(broker)
    assert await broker.consuming.consume(one) == b"0"
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock(78021, $1)", one.subscription_id)
        waiting = asyncio.ensure_future(broker.consuming.consume(one))
        assert await broker.consuming.consume(two) == b"0"
        assert not waiting.done()
    assert await waiting == b"1"


async def test_another_node_has_it_meanwhile(broker: Broker, connection: Connection) -> None:
    """While we stand in line for a consumer's place, another node moves it past the message that we wanted:
    it is that node's, and we hand out the next."""
    await publish(broker, 3)
    one, two = await consumer(broker), await consumer(broker)
    assert await broker.consuming.consume(one) == b"0"
    (partition_id,) = (await broker.topics.existing("t")).partition_ids
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock(78021, $1)", one.subscription_id)
        waiting = asyncio.ensure_future(broker.consuming.consume(one))
        assert await broker.consuming.consume(two) == b"0", "by now we were told that the place is taken"
        await connection.execute(
            "insert into nuncius.positions (subscription_id, partition_id, position) values ($1, $2, 2)",
            *(one.subscription_id, partition_id),
        )
    assert await waiting == b"2"


async def test_a_partition_that_cannot_be_read(broker: Broker) -> None:
    """Others are read first; if none of them has anything, the trouble is told. So it is to a reader."""
    await broker.topics.create("t", 2)
    await broker.topics.publish("t", [b"a"], partition=1)
    await broker.topics.publish("t", [b"b"], partition=2)
    who = await consumer(broker)
    broker.topics.elsewhere = Away((await broker.topics.existing("t")).partition_ids[0])
    assert await broker.consuming.consume(who) == b"b"
    with pytest.raises(StoreUnavailable):
        await broker.consuming.consume(who)
    sue = await broker.subscriptions.subscribe("t", "sue", start="earliest")
    reader = await broker.subscriptions.cursor(sue)
    piece = await reader.look(10)
    assert piece is not None
    assert piece.entries.bodies == [b"b"]
    with pytest.raises(StoreUnavailable):
        await reader.look(10)
    broker.topics.elsewhere = None
    assert await broker.consuming.consume(who) == b"a"


async def test_keys_at_two_nodes(broker: Broker, second: Broker) -> None:
    """Requests with the same key get the same message, at whichever node, even at the same time."""
    await publish(broker, 40)
    who = await consumer(broker)
    for number in range(20):
        key = f"k{number}"
        answers = await asyncio.gather(
            *(each.consuming.consume(who, key=key) for each in (broker, second) for _ in range(2))
        )
        assert len(set(answers)) == 1, answers
    assert len(await drain(broker, who)) == 20


async def test_a_key_whose_message_cannot_be_fetched(broker: Broker) -> None:
    """The request fails, and can be repeated."""
    await publish(broker, 1)
    who = await consumer(broker)
    assert await broker.consuming.consume(who, key="k") == b"0"
    broker.topics.elsewhere = Away((await broker.topics.existing("t")).partition_ids[0])
    broker._tails.forget()  # noqa: SLF001
    with pytest.raises(StoreUnavailable):
        await broker.consuming.consume(who, key="k")
    broker.topics.elsewhere = None
    assert await broker.consuming.consume(who, key="k") == b"0"


async def test_a_key_whose_message_is_gone(broker: Broker) -> None:
    """While its store says nothing that is an error, when retention has removed it there is nothing."""
    await publish(broker, 1)
    who = await consumer(broker)
    assert await broker.consuming.consume(who, key="k") == b"0"
    partition_id = (await broker.topics.existing("t")).partition_ids[0]
    broker.topics.elsewhere = Away(partition_id, None)
    broker._tails.forget()  # noqa: SLF001
    with pytest.raises(StoreUnavailable):
        await broker.consuming.consume(who, key="k")
    broker.topics.elsewhere = None
    await broker.topics.purge("t")
    await broker.topics.publish("t", [b"1"])
    assert await broker.consuming.consume(who, key="k") is None
    assert await broker.consuming.consume(who, key="l") == b"1"


async def test_memory_is_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers that are forgotten because there are many, or whose entries are not cached any more, go on
    where they were."""
    await broker.topics.publish("t", [b"x" * 1000 + b"%d" % n for n in range(100)])
    monkeypatch.setattr(broker._tails, "_max_bytes", 1000)  # noqa: SLF001
    monkeypatch.setattr(consuming, "MOST_CONSUMERS", 3)
    who = [await consumer(broker) for _ in range(6)]
    for number in range(3):
        for each in who:
            body = await broker.consuming.consume(each)
            assert body is not None
            assert body.endswith(b"x%d" % number)
            broker._tails.forget()  # noqa: SLF001
    assert len(broker.consuming._pullers) == 3  # noqa: SLF001


async def test_many_partitions_cost_no_more(broker: Broker) -> None:
    """A message costs one small step, however many partitions there are."""
    times = {}
    for partitions in (1, 100):
        topic = f"t{partitions}"
        await broker.topics.create(topic, partitions)
        await broker.topics.publish(topic, [b"x"] * 800, keys=[str(n) for n in range(800)])
        who = await consumer(broker, topic)
        start = time.perf_counter()
        assert len(await drain(broker, who, 16)) == 800
        times[partitions] = time.perf_counter() - start
    assert times[100] < 5 * times[1] + 0.5
