"""Feeds: entries handed to subscribers as they come, with acknowledgement, retries and dead letters."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from broker.acknowledging import (
    PATIENT,
    QUICK,
    Inbox,
    ack,
    idle,
    nack,
    node,
    outstanding,
    position,
    subscriber,
)
from broker.inside import everything, start
from nuncius.broker import Broker, future
from nuncius.broker.background import listener
from nuncius.broker.delivery.push import claims
from nuncius.broker.errors import (
    InvalidInput,
    NoSuchSubscription,
    NoSuchTopic,
    OutcomeUnknown,
    TakenOver,
)
from nuncius.broker.limits import Limits
from nuncius.broker.model import Feed, PushedSlice, Retention
from nuncius.store.driver import Connection
from racing import terminate, until, until_somebody_waits

ONCE = Limits(retry_delay=0.02, max_attempts=1)


class Gate:
    """Lets a feed pass while its subscriber reads."""

    def __init__(self, reads: asyncio.Event) -> None:
        self._reads = reads

    async def __aenter__(self) -> None:
        await self._reads.wait()

    async def __aexit__(self, *error: object) -> None:
        """There is nothing to leave."""


async def names(broker: Broker) -> list[str]:
    """Who is subscribed."""
    return [info.subscriber for info in await broker.subscriptions.list()]


def crash(feed: Feed) -> None:
    """The feed ends without a word, as it does with its node."""
    assert feed._task is not None  # noqa: SLF001
    feed._task.cancel()  # noqa: SLF001
    feed._leaving = asyncio.create_task(asyncio.sleep(0))  # noqa: SLF001  (nobody closes it properly)


# Handing over


async def test_entries_come_by_themselves(broker: Broker) -> None:
    """A subscriber gets what is published after it subscribed, with keys, headers and offsets."""
    await broker.topics.publish("news", [b"before"])
    inbox, _ = await subscriber(broker)
    await broker.topics.publish("news", [b"a", b"b"], keys=["k", None], headers=[None, '{"h": "x"}'])
    await inbox.until(2)
    assert inbox.got == [(1, 1, b"a", 0, False), (1, 2, b"b", 0, False)]
    entries = inbox.batches[0].chunk.entries
    assert (entries.keys, entries.headers) == (["k", None], [None, '{"h": "x"}'])


async def test_subscribers_share_what_is_fetched(broker: Broker) -> None:
    """Many subscribers of one topic get the very same chunks."""
    many = [(await subscriber(broker, name=f"{n}"))[0] for n in range(20)]
    await broker.topics.publish("news", [b"x"] * 10)
    for inbox in many:
        await inbox.until(10)
    assert len({id(inbox.batches[0].chunk) for inbox in many}) == 1


async def test_a_subscriber_that_does_not_read(broker: Broker) -> None:
    """Who does not read stops its own feed, and nobody else's; when it reads again it misses nothing."""
    reads = asyncio.Event()
    slow = Inbox()

    await broker.feeds.open("news", "slow", slow.push, gate=Gate(reads))
    quick, _ = await subscriber(broker, name="quick")
    for n in range(20):
        await broker.topics.publish("news", [b"%d" % n])
        await quick.until(n + 1)
    assert slow.got == []
    reads.set()
    await slow.until(20)
    assert slow.bodies == quick.bodies


async def test_everything_is_at_hand(broker: Broker) -> None:
    """A feed that finds all it wants at hand still notices soon that its subscriber does not read."""
    await broker.topics.publish("news", [b"x"] * 3000)
    first, _ = await subscriber(broker, start="earliest")
    await first.until(3000)
    reads = asyncio.Event()
    reads.set()
    inbox = Inbox()

    def push(batch: PushedSlice) -> None:
        inbox.push(batch)
        asyncio.get_running_loop().call_soon(reads.clear)  # as a socket does that is full

    await broker.feeds.open("news", "tom", push, start="earliest", gate=Gate(reads))
    await until(lambda: not reads.is_set())
    assert 1 <= len(inbox.batches) <= 2
    while len(inbox.got) < 3000:
        reads.set()
        await until(lambda: not reads.is_set())
    assert len(inbox.got) == 3000


async def test_prefetch(broker: Broker) -> None:
    """No more than the prefetch is outstanding; every acknowledgement makes room for the next."""
    inbox, feed = await subscriber(broker, acknowledged=True, prefetch=3)
    await broker.topics.publish("news", [b"%d" % n for n in range(10)])
    await inbox.until(3)
    await idle(feed)
    assert len(inbox.got) == outstanding(feed) == 3
    await ack(feed, 1)
    await inbox.until(4)
    await idle(feed)
    assert len(inbox.got) == 4
    await ack(feed, 3, cumulative=True)
    await inbox.until(7)
    await idle(feed)
    assert len(inbox.got) == 7
    assert outstanding(feed) == 3


async def test_a_push_that_fails(broker: Broker) -> None:
    """A subscriber that fails on an entry ends its feed, learns why, and nobody else notices."""
    broken: list[Exception] = []

    def fail(_: Any) -> None:
        raise RuntimeError("on purpose")

    feed = await broker.feeds.open("news", "bad", fail, ended=broken.append)
    inbox, _ = await subscriber(broker)
    await broker.topics.publish("news", [b"x"])
    await inbox.until(1)
    await until(lambda: broken)
    assert str(broken[0]) == "on purpose"
    await feed.close()
    assert await names(broker) == ["sue"]


async def test_a_topic_that_is_deleted(broker: Broker) -> None:
    """A feed ends with its topic, and with its subscription."""
    one, _ = await subscriber(broker, "news", "sue", durable=True)
    two, _ = await subscriber(broker, "other", "tom")
    await broker.subscriptions.unsubscribe("news", "sue")
    await broker.topics.delete("other")
    for inbox, reason in (one, NoSuchSubscription), (two, NoSuchTopic):
        await until(lambda inbox=inbox: inbox.broken)  # type: ignore[misc]
        assert isinstance(inbox.broken[0], reason)


# Acknowledging


async def test_cumulative(broker: Broker, connection: Connection) -> None:
    """A cumulative acknowledgement is for everything that was pushed before, over all partitions."""
    await broker.topics.create("news", 2)
    inbox, feed = await subscriber(broker, durable=True, acknowledged=True)
    for n in range(6):
        await broker.topics.publish("news", [b"%d" % n], partition=1 + n % 2)
        await inbox.until(n + 1)
    await ack(feed, 1, 2, cumulative=True)
    assert [await position(connection, partition=n) for n in (1, 2)] == [2, 2]
    assert outstanding(feed) == 2


async def test_many_acknowledgements_at_once(broker: Broker, connection: Connection) -> None:
    """A thousand acknowledgements that travel together move the place to where they reach together."""
    inbox, feed = await subscriber(broker, durable=True, acknowledged=True)
    await broker.topics.publish("news", [b"%d" % n for n in range(1000)])
    await inbox.until(1000)
    await asyncio.gather(*(ack(feed, offset) for offset in reversed(range(1000))))
    assert await position(connection) == 1000


# What fails


async def test_a_failed_entry_comes_again(dsn: str) -> None:
    """An entry that a subscriber could not take comes again after the retry delay, counted and marked, and
    holds nothing up: neither what comes after it nor the subscriber's place."""
    async with node(dsn) as broker:
        inbox, feed = await subscriber(broker, acknowledged=True)
        await broker.topics.publish("news", [b"0", b"1"])
        await inbox.until(2)
        await nack(feed, 0, reason="not today")
        (failure,) = await broker.failures()
        assert (failure.destination, failure.subscriber, failure.partition) == ("/topic/news", "sue", 1)
        assert (failure.id, failure.attempts, failure.reason) == (0, 1, "not today")
        await ack(feed, 1)
        await inbox.until(3)
        assert inbox.got[2] == (1, 0, b"0", 1, True)
        await nack(feed, 0)
        await inbox.until(4)
        assert inbox.got[3] == (1, 0, b"0", 2, True)
        await ack(feed, 0)
        assert await broker.failures() == []


async def test_prefetch_of_what_comes_again(dsn: str) -> None:
    """What comes again counts as outstanding like anything else."""
    async with node(dsn) as broker:
        inbox, feed = await subscriber(broker, acknowledged=True, prefetch=1)
        await broker.topics.publish("news", [b"0", b"1"])
        await inbox.until(1)
        await nack(feed, 0)
        await inbox.until(2)
        await ack(feed, 1)
        await inbox.until(3)
        await broker.topics.publish("news", [b"2"])
        await idle(feed)
        assert inbox.bodies == [b"0", b"1", b"0"]
        await ack(feed, 0)
        await inbox.until(4)


async def test_not_before_its_time(dsn: str, connection: Connection) -> None:
    """Until the retry delay is over a failed entry does not come. The others do; the place has passed it."""
    async with node(dsn, PATIENT) as broker:
        inbox, feed = await subscriber(broker, durable=True, acknowledged=True)
        await broker.topics.publish("news", [b"0"])
        await inbox.until(1)
        await nack(feed, 0)
        await broker.topics.publish("news", [b"1"])
        await inbox.until(2)
        await idle(feed)
        assert inbox.bodies == [b"0", b"1"]
        assert await position(connection) == 1


async def test_dead_letters(dsn: str) -> None:
    """After the last attempt an entry is in the topic "dead/NAME", with its history in headers; whoever
    subscribes there gets it."""
    async with node(dsn) as broker:
        inbox, feed = await subscriber(broker, acknowledged=True)
        dead, _ = await subscriber(broker, "dead/news", "undertaker")
        await broker.topics.publish("news", [b"x"], headers=['{"a": "b"}'])
        for n in range(3):
            await inbox.until(n + 1)
            await nack(feed, 0, reason=f"reason {n}")
        await dead.until(1)
        headers = json.loads((dead.batches[0].chunk.entries.headers or [None])[0] or "")
        assert dead.bodies == [b"x"]
        assert (headers["a"], headers["dead-subscriber"]) == ("b", "sue")
        assert (headers["dead-attempts"], headers["dead-reason"]) == ("3", "reason 2")
        topic_id = feed.subscription.topic.topic_id
        assert headers["dead-message-id"] == f"t-{topic_id}-1-0"
        assert await broker.failures() == []
        await idle(feed)
        assert len(inbox.got) == 3


@pytest.mark.parametrize("reason", ["a\0b", "\ud800", "x" * 100_000])
async def test_any_reason_will_do(broker: Broker, reason: str) -> None:
    """Whatever a client says of its failure, the failure is noted."""
    inbox, feed = await subscriber(broker, acknowledged=True)
    await broker.topics.publish("news", [b"x"])
    await inbox.until(1)
    await nack(feed, 0, reason=reason)
    (failure,) = await broker.failures()
    assert failure.reason


async def test_new_entries_are_not_kept_waiting(dsn: str) -> None:
    """However many entries are due again, new ones come between them."""
    reads = asyncio.Event()
    reads.set()
    async with node(dsn, Limits(retry_delay=0.0)) as broker:
        inbox, feed = await subscriber(broker, acknowledged=True, gate=Gate(reads))
        await broker.topics.publish("news", [b"bad"] * 50)
        await inbox.until(50)
        await idle(feed)
        reads.clear()
        await nack(feed, 49, cumulative=True)
        await broker.topics.publish("news", [b"good"])
        reads.set()
        await inbox.until(101)
        assert inbox.bodies.index(b"good") < 60


async def test_retention_keeps_what_failed(dsn: str) -> None:
    """While an entry waits for its next attempt, retention by subscribers keeps it; then it goes."""
    async with node(dsn, PATIENT) as broker:
        inbox, feed = await subscriber(broker, durable=True, acknowledged=True)
        await broker.topics.set_retention("news", Retention("subscribers"))
        await broker.topics.publish("news", [b"0", b"1", b"2"])
        await inbox.until(3)
        await nack(feed, 1)
        await ack(feed, 2, cumulative=True)
        await broker.duties.collect()
        assert await everything(broker, "news") == [b"1", b"2"]
        await feed.close()
    async with node(dsn, ONCE) as broker:
        await broker._store.execute("update nuncius.failures set due_at = now()")  # noqa: SLF001
        again, feed = await subscriber(broker, durable=True, acknowledged=True)
        await again.until(1)
        assert again.got == [(1, 1, b"1", 1, True)]
        await ack(feed, 1)
        await broker.duties.collect()
        assert await everything(broker, "news") == []


async def test_a_failed_entry_that_is_gone(dsn: str, connection: Connection) -> None:
    """A failed entry that was purged before its next attempt is forgotten."""
    async with node(dsn, Limits(retry_delay=0.2)) as broker:
        inbox, feed = await subscriber(broker, acknowledged=True)
        await broker.topics.publish("news", [b"x"])
        await inbox.until(1)
        await nack(feed, 0)
        await broker.topics.purge("news")

        async def forgotten() -> bool:
            return not await connection.fetchval("select count(*) from nuncius.failures")

        await until(forgotten)
        await broker.topics.publish("news", [b"y"])
        await inbox.until(2)
        assert inbox.bodies == [b"x", b"y"]


async def test_a_locked_dead_letter_topic(dsn: str, other: Connection, observer: Connection) -> None:
    """While somebody's long transaction keeps a dead letter waiting, other subscribers are served; and if the
    connection breaks meanwhile, the place does not pass what nobody knows the fate of."""
    async with node(dsn, ONCE) as broker:
        inbox, feed = await subscriber(broker, durable=True, acknowledged=True)
        tom, toms = await subscriber(broker, name="tom", durable=True, acknowledged=True)
        await broker.topics.publish("news", [b"0", b"1"])
        await inbox.until(2)
        await tom.until(2)
        await other.execute("begin")
        await other.execute("select nuncius.publish('dead/news', 'mine')")
        failing = start(nack(feed, 0))
        await until_somebody_waits(observer, "nuncius acknowledge")
        await ack(toms, 0)
        assert await position(observer, "tom") == 1
        taking = start(ack(feed, 1))
        while not failing.done():
            await terminate(observer, "nuncius acknowledge")
            await asyncio.wait([failing], timeout=0.01)
        with pytest.raises(OutcomeUnknown):
            await failing
        await taking
        assert await position(observer) == 0
        assert outstanding(feed) == 1
        await other.execute("rollback")
        await ack(feed, 0)
        assert await position(observer) == 2


async def test_said_at_the_same_time(dsn: str, other: Connection, observer: Connection) -> None:
    """What a transaction and the subscriber itself say at the same time reaches as far as both together; and
    until the transaction is committed the place does not pass what is in it."""
    async with node(dsn, ONCE) as broker:
        inbox, feed = await subscriber(broker, durable=True, acknowledged=True)
        await broker.topics.publish("news", [b"0", b"1", b"2"])
        await inbox.until(3)
        await other.execute("begin")
        await other.execute("select nuncius.publish('dead/news', 'mine')")
        committed, done = future.new()
        transaction = broker.transaction()
        transaction.ack(feed, 1, 0, cumulative=False)
        transaction.nack(feed, 1, 2, cumulative=False, reason="no")
        transaction.commit_soon(done)
        await until_somebody_waits(observer, "nuncius pool")
        await ack(feed, 1)
        assert await position(observer) == 0
        await other.execute("commit")
        await committed

        async def both() -> bool:
            return await position(observer) == 3

        await until(both)


# Coming and going


async def test_not_durable(broker: Broker) -> None:
    """A subscription that is not durable ends with its feed; closing twice is closing once."""
    _, feed = await subscriber(broker)
    assert await names(broker) == ["sue"]
    await feed.close()
    await feed.close()
    assert await names(broker) == []


async def test_durable(dsn: str) -> None:
    """A durable subscriber finds again, at another node, what it has not acknowledged, marked as redelivered,
    and then what it has not been given yet, which is not."""
    async with node(dsn) as broker:
        inbox, feed = await subscriber(broker, durable=True, acknowledged=True, prefetch=3)
        await broker.topics.publish("news", [b"%d" % n for n in range(5)])
        await inbox.until(3)
        await ack(feed, 0)
        await inbox.until(4)
        crash(feed)
        async with node(dsn) as elsewhere:
            again, _ = await subscriber(elsewhere, durable=True, acknowledged=True)
            await again.until(4)
        assert [(offset, redelivered) for _, offset, _, _, redelivered in again.got] == [
            (1, True), (2, True), (3, True), (4, False),
        ]  # fmt: skip


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("acknowledged", [False, True])
async def test_a_durable_subscriber_that_comes_twice(dsn: str, elsewhere: bool, acknowledged: bool) -> None:
    """A durable subscription has one feed at a time. The last one goes on where the one before it was, and
    that one ends, at whichever node."""
    async with node(dsn) as broker, node(dsn) as another:
        brokers = [broker, another if elsewhere else broker]
        await broker.topics.create("news")
        given: list[bytes] = []
        before, feed = await subscriber(broker, durable=True, acknowledged=acknowledged)
        for n in range(6):
            await broker.topics.publish("news", [b"%d" % n])
            await before.until(1)
            given += before.bodies
            if acknowledged:
                await ack(feed, n)
            after, feed = await subscriber(brokers[(n + 1) % 2], durable=True, acknowledged=acknowledged)
            assert [type(error) for error in before.broken] == [TakenOver]
            before = after
        assert given == [b"%d" % n for n in range(6)]
        assert await broker.failures() == []


async def test_many_that_come_at_once(dsn: str) -> None:
    """However many want a durable subscription at the same time, at several nodes, one has it in the end."""
    async with node(dsn) as broker, node(dsn) as another:
        await broker.topics.create("news")
        opening = [subscriber((broker, another)[n % 2], durable=True, acknowledged=True) for n in range(20)]
        inboxes = [inbox for inbox, _ in await asyncio.gather(*opening)]
        await until(lambda: sum(not inbox.broken for inbox in inboxes) == 1)
        (last,) = (inbox for inbox in inboxes if not inbox.broken)
        await broker.topics.publish("news", [b"x"])
        await last.until(1)
        assert sum(len(inbox.got) for inbox in inboxes) == 1


async def test_a_node_that_does_not_make_way(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscription is taken from a node that lives and does not answer; when that one hears again what goes
    on, its feed ends."""
    monkeypatch.setattr(claims, "PATIENCE", 0.0)
    async with node(dsn) as broker, node(dsn) as another:
        listening = broker._listener  # noqa: SLF001
        wanted = listening.on_wanted
        listening.on_wanted = lambda _: None
        deaf, _ = await subscriber(broker, durable=True)
        inbox, _ = await subscriber(another, durable=True)
        assert not deaf.broken
        wanted(None)
        await until(lambda: deaf.broken)
        await broker.topics.publish("news", [b"x"])
        await inbox.until(1)
        assert deaf.got == []


async def test_what_a_node_had_that_is_gone(dsn: str, connection: Connection) -> None:
    """A subscription that was fed at a node that has died is free at once."""
    await connection.execute("select nuncius.subscribe('news', 'sue')")
    await connection.execute("update nuncius.subscriptions set feeder = 12345")
    async with node(dsn) as broker:
        inbox, _ = await subscriber(broker, durable=True)
        await broker.topics.publish("news", [b"x"])
        await inbox.until(1)


async def test_what_is_acknowledged_does_not_come_again(dsn: str) -> None:
    """A durable subscriber that leaves gets again what it has not acknowledged, and nothing that it has,
    in whatever order it did so."""
    async with node(dsn) as broker:
        inbox, feed = await subscriber(broker, durable=True, acknowledged=True)
        await broker.topics.publish("news", [b"%d" % n for n in range(6)])
        await inbox.until(6)
        for offset in (1, 3):
            await ack(feed, offset)
        await feed.close()
        again, _ = await subscriber(broker, durable=True, acknowledged=True)
        await again.until(4)
        assert sorted(again.bodies) == [b"0", b"2", b"4", b"5"]
        assert all(redelivered for _, _, _, _, redelivered in again.got)


async def test_an_entry_that_nobody_survives(dsn: str) -> None:
    """A subscriber that is lost again and again at the same entry gets on: after the first time that entry
    counts as failed, does not hold up the others, and is a dead letter in the end."""
    met = []
    async with node(dsn) as broker:
        await broker.subscriptions.subscribe("news", "sue")
        await broker.topics.publish("news", [b"poison", b"good"])
        for _ in range(4):
            inbox, feed = await subscriber(broker, durable=True, acknowledged=True, prefetch=1)
            await inbox.until(1)
            if inbox.bodies == [b"good"]:
                await ack(feed, 1)
                await inbox.until(2)
            await feed.close("the connection was lost")
            met.append((inbox.bodies[-1], [failure.attempts for failure in await broker.failures()]))
        assert met == [(b"poison", []), (b"poison", [1]), (b"poison", [2]), (b"poison", [])]
        assert await everything(broker, "dead/news") == [b"poison"]


async def test_what_was_said_last(broker: Broker, connection: Connection) -> None:
    """What a subscriber says just before it leaves is stored when its feed is closed."""
    inbox, feed = await subscriber(broker, durable=True, acknowledged=True)
    await broker.topics.publish("news", [b"%d" % n for n in range(100)])
    await inbox.until(100)
    said = [start(ack(feed, offset)) for offset in range(100)]
    await asyncio.sleep(0)  # it is said, and on its way
    await feed.close()
    assert await position(connection) == 100
    await asyncio.gather(*said)


async def test_a_failure_after_a_crash(dsn: str, connection: Connection) -> None:
    """An entry that failed, behind one that was not acknowledged, comes once after a crash; its attempts go
    on, and when it is taken nothing is left of the failure."""
    async with node(dsn, PATIENT) as broker:
        inbox, feed = await subscriber(broker, durable=True, acknowledged=True)
        await broker.topics.publish("news", [b"0", b"1", b"2", b"3"])
        await inbox.until(4)
        await nack(feed, 1)
        await nack(feed, 2)
        crash(feed)
    async with node(dsn, QUICK) as broker:
        await connection.execute("update nuncius.failures set due_at = now()")
        again, feed = await subscriber(broker, durable=True, acknowledged=True)
        await again.until(4)
        assert Counter(again.bodies) == Counter([b"0", b"1", b"2", b"3"])
        await ack(feed, 1)
        await nack(feed, 2)
        await again.until(5)
        assert again.got[4] == (1, 2, b"2", 2, True)
        for offset in (0, 2, 3):
            await ack(feed, offset)
        assert await position(connection) == 4
        assert await broker.failures() == []
        assert len(again.got) == 5


async def test_failures_of_who_does_not_acknowledge_any_more(dsn: str, connection: Connection) -> None:
    """A subscriber that comes back without acknowledgement gets what had failed, and that is that."""
    async with node(dsn, PATIENT) as broker:
        inbox, feed = await subscriber(broker, durable=True, acknowledged=True)
        await broker.topics.publish("news", [b"0", b"1", b"2"])
        await inbox.until(3)
        await nack(feed, 0)
        await nack(feed, 2)
        crash(feed)
        await connection.execute("update nuncius.failures set due_at = now()")
        again, _ = await subscriber(broker, durable=True)
        await again.until(3)
        assert sorted(again.bodies) == [b"0", b"1", b"2"]

        async def forgotten() -> bool:
            return not await connection.fetchval("select count(*) from nuncius.failures")

        await until(forgotten)


async def test_the_same_name_twice(broker: Broker, second: Broker) -> None:
    """When two connections use one name, the end of one does not end the subscription of the other."""
    _, first = await subscriber(broker)
    inbox, _ = await subscriber(broker)
    await first.close()
    assert await names(broker) == ["sue"]
    elsewhere, away = await subscriber(second)
    await broker.topics.publish("news", [b"x"])
    await inbox.until(1)
    await elsewhere.until(1)
    await away.close()
    assert await names(broker) == []


async def test_opened_while_the_last_one_closes(broker: Broker) -> None:
    """Who subscribes while the last feed of that name is closing gets a subscription that lasts."""
    for _ in range(5):
        _, first = await subscriber(broker)
        closing = start(first.close())
        await asyncio.sleep(0)  # it has begun
        inbox, second = await subscriber(broker)
        await closing
        assert await names(broker) == ["sue"]
        await broker.topics.publish("news", [b"x"])
        await inbox.until(1)
        await second.close()


async def test_a_durable_subscription_is_not_ended_by_mistake(broker: Broker) -> None:
    """Whoever uses a durable subscription without saying so does not end it; and one that is asked for as
    durable stays, although it was not so at first."""
    _, lasting = await subscriber(broker, durable=True)
    _, passing = await subscriber(broker)
    await lasting.close()
    await passing.close()
    _, passing = await subscriber(broker, name="tom")
    _, lasting = await subscriber(broker, name="tom", durable=True)
    await lasting.close()
    await passing.close()
    assert await names(broker) == ["sue", "tom"]


async def test_who_does_not_wait_for_the_feed(
    broker: Broker, other: Connection, observer: Connection
) -> None:
    """If nobody waits for a feed any more when it is open, nothing is left of it."""
    await broker.topics.create("news")
    await other.execute("begin")
    await other.execute("select from nuncius.topics for update")
    opening = start(subscriber(broker))
    await until_somebody_waits(observer, "nuncius pool")
    opening.cancel()
    await asyncio.wait([opening])
    await other.execute("rollback")
    assert await names(broker) == []
    with pytest.raises(InvalidInput):
        await subscriber(broker, start="tomorrow")
    _, feed = await subscriber(broker)
    await feed.close()
    assert await names(broker) == []


async def test_the_end_of_a_node(dsn: str, broker: Broker) -> None:
    """A node that ends closes its feeds: what was not durable ends with it."""
    async with node(dsn) as ending:
        await subscriber(ending)
        await subscriber(ending, name="tom", durable=True)
    assert await names(broker) == ["tom"]


async def test_a_node_that_is_gone(
    broker: Broker, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subscriptions that lived by a node that is gone end; one that was taken over goes on."""
    monkeypatch.setattr(listener, "GRACE_SECONDS", 0.0)
    await connection.execute("insert into nuncius.holders values (1000)")
    for name in ("gone", "sue"):
        await connection.execute("select nuncius.subscribe('news', $1, 'latest', false, 1000)", name)
    await broker.topics.publish("news", [b"missed"])
    inbox, _ = await subscriber(broker)
    await broker.leases.return_due()
    assert await names(broker) == ["sue"]
    await inbox.until(1)
    assert inbox.bodies == [b"missed"]
