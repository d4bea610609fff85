"""Entries of several topics come to the feeds of one connection in the order in which they were stored."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from broker.acknowledging import Inbox, ack, idle
from nuncius.broker import Broker
from nuncius.broker.caller import Caller
from nuncius.broker.model import Feed
from nuncius.store.calls.publishing import Shipment
from nuncius.store.combiner.combiner import Combiner
from racing import until

ME, SENDER = Caller("stomp", "stomp-1"), Caller("stomp", "stomp-2")


async def feeds(broker: Broker, *topics: str, **options: Any) -> tuple[Inbox, list[Feed]]:
    """One inbox, and a feed of each topic that fills it."""
    inbox = Inbox()
    opened = [await feed(broker, inbox, topic, **options) for topic in topics]
    for each in opened:
        await idle(each)
    return inbox, opened


async def feed(broker: Broker, inbox: Inbox, topic: str, **options: Any) -> Feed:
    return await broker.feeds.open(
        topic, f"me of {topic}", inbox.push, caller=ME, ended=inbox.broken.append, **options
    )


async def publish(broker: Broker, *sent: tuple[str, bytes]) -> None:
    """Publishes in one batch."""
    await asyncio.gather(*(broker.topics.publish(topic, [body], caller=SENDER) for topic, body in sent))


class Held:
    """Batches of a combiner that are not carried out before `let_go`, with what they were asked."""

    def __init__(self, combiner: Combiner[Any], wanted: Callable[[Any], bool]) -> None:
        self.count = 0
        self._opened = asyncio.Event()
        self._wanted = wanted
        self._carry_out: Callable[..., Awaitable[Sequence[Any]]] = combiner._execute  # noqa: SLF001
        combiner._execute = self._hold  # noqa: SLF001

    def let_go(self) -> None:
        self._opened.set()

    async def _hold(self, connection: Any, calls: Sequence[Any], wait: bool) -> Sequence[Any]:
        if any(map(self._wanted, calls)):
            self.count += 1
            await self._opened.wait()
        return await self._carry_out(connection, calls, wait)


def held_fetches(broker: Broker, feed: Feed) -> Held:
    """Holds looks at a feed's topic."""
    partition_id = feed.subscription.topic.partition_ids[0]
    return Held(broker.topics._fetching, lambda call: call.partition_id == partition_id)  # noqa: SLF001


async def test_what_is_visible_before_its_place_is_known(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry that a feed can see, while the batch it came with is not answered, waits for its turn."""
    inbox, (_, second) = await feeds(broker, "a", "b")
    for topic in ("a", "b"):
        await broker.topics.names.find(topic)
    opened = asyncio.Event()
    send = Shipment.send

    async def late(*arguments: Any) -> list[Any]:
        results = await send(*arguments)
        await opened.wait()
        return results

    monkeypatch.setattr(Shipment, "send", late)
    answers: list[Any] = []
    for topic, body in (("a", b"0"), ("b", b"1")):  # in one batch
        broker.topics.publish_soon(topic, [body], answers.append, caller=SENDER)

    def is_visible() -> bool:
        broker.signals.raise_for(second.subscription.topic.topic_id)
        return second.cursor.fetched_to(1) == 1

    try:
        await until(is_visible, 20)
        await idle(second)
        assert inbox.got == []
    finally:
        opened.set()
    await inbox.until(2)
    assert inbox.bodies == [b"0", b"1"]


async def test_a_look_that_began_before_the_second_topic(broker: Broker) -> None:
    """A feed that was alone when it set out to look is not alone when it comes back."""
    inbox = Inbox()
    held = Held(broker.topics._fetching, lambda call: True)  # noqa: SLF001
    await feed(broker, inbox, "b")
    await until(lambda: held.count)
    await feed(broker, inbox, "a")
    await publish(broker, ("a", b"0"), ("b", b"1"))
    held.let_go()
    await inbox.until(2)
    assert inbox.bodies == [b"0", b"1"]


async def test_a_topic_that_is_fetched_late(broker: Broker) -> None:
    """What comes first is waited for; the node goes on when it has it."""
    inbox, (first, second) = await feeds(broker, "a", "b")
    held = held_fetches(broker, first)
    await publish(broker, *[(("a", "b")[n % 2], b"%d" % n) for n in range(10)])
    await until(lambda: held.count)
    assert inbox.got == []
    held.let_go()
    await inbox.until(10)
    assert inbox.bodies == [b"%d" % n for n in range(10)]
    assert second.cursor.places[1][1] == 5


async def test_a_topic_that_is_looked_up_late(broker: Broker) -> None:
    """An entry for a topic that has to be looked up is stored before what the same caller sends behind it."""
    inbox, _ = await feeds(broker, "a", "b")
    await publish(broker, ("b", b"known"))
    await publish(broker, ("a", b"0"), ("b", b"1"), ("a", b"2"))
    await inbox.until(4)
    assert inbox.bodies == [b"known", b"0", b"1", b"2"]


async def test_a_subscriber_that_has_enough_of_one_topic(broker: Broker) -> None:
    """Entries of a topic of which the subscriber may not get more do not hold up the others; they come when
    there is room."""
    inbox, (first, _) = await feeds(broker, "a", "b", acknowledged=True, prefetch=2)
    await publish(
        broker, *[(topic, topic.encode() + b"%d" % n) for n in range(2) for topic in ("a", "b", "a")]
    )
    await inbox.until(4)
    assert inbox.bodies == [b"a0", b"b0", b"a0", b"b1"]
    await ack(first, 0)
    await ack(first, 1)
    await inbox.until(6)
    assert inbox.bodies[4:] == [b"a1", b"a1"]


async def test_a_feed_that_ends(broker: Broker) -> None:
    """What was to come first does not hold up the others any more when its feed ends."""
    inbox, (first, _, _) = await feeds(broker, "a", "b", "c")
    held = held_fetches(broker, first)
    await publish(broker, ("a", b"0"), ("b", b"1"), ("c", b"2"))
    await until(lambda: held.count)
    await first.close()
    held.let_go()
    await inbox.until(2)
    assert inbox.bodies == [b"1", b"2"]


async def test_entries_that_are_gone(broker: Broker) -> None:
    """What was to come first and was purged meanwhile does not hold up the others."""
    inbox, (first, _) = await feeds(broker, "a", "b")
    held = held_fetches(broker, first)
    await publish(broker, ("a", b"0"), ("b", b"1"))
    await until(lambda: held.count)
    await broker.topics.purge("a")
    held.let_go()
    await inbox.until(1)
    await publish(broker, ("a", b"2"), ("b", b"3"))
    await inbox.until(3)
    assert inbox.bodies == [b"1", b"2", b"3"]


@pytest.mark.parametrize("durable", [False, True])
async def test_entries_of_other_nodes_come_among_them(broker: Broker, second: Broker, durable: bool) -> None:
    """Entries that another node stores come, too, each partition in order."""
    inbox, opened = await feeds(broker, "a", "b", durable=durable, acknowledged=durable)

    async def send(node: Broker) -> None:
        for n in range(100):
            await node.topics.publish(("a", "b")[n % 2], [b"%d" % n], caller=SENDER)

    await asyncio.gather(send(broker), send(second))
    await inbox.until(200)
    for each in opened:
        topic = each.subscription.topic
        entries = await broker.topics.fetch(topic, 1, 0, 1000)
        assert entries is not None
        mine = [body for body in inbox.bodies if int(body) % 2 == ("a", "b").index(topic.name)]
        assert mine == entries.bodies


async def test_what_is_remembered_ends(broker: Broker) -> None:
    """The order is remembered for topics of connections that subscribe to several, as long as they do."""
    order = broker.topics.order
    _, (first, second) = await feeds(broker, "a", "b")
    await publish(broker, ("a", b"0"), ("b", b"1"), ("c", b"2"))
    assert [bool(order.latest(each.subscription.topic.topic_id)) for each in (first, second)] == [True, True]
    await first.close()
    assert [order.latest(each.subscription.topic.topic_id) for each in (first, second)] == [0, 0]
    await second.close()
