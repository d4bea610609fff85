"""Queues through the broker: putting, asking, and looking after them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.inside import bodies, put, queue, start, until_waiting_for
from nuncius.broker import Broker, future
from nuncius.broker.caller import Caller
from nuncius.broker.errors import AlreadyExists, InvalidInput, NoSuchQueue
from nuncius.broker.model import BY_TIME, Letter
from nuncius.broker.queues.queue import Queue
from nuncius.store.driver import Connection
from racing import until, until_somebody_waits


async def test_put_and_take(broker: Broker) -> None:
    """What is put can be taken, with everything it was put with."""
    jobs = await queue(broker)
    stored = await put(broker, jobs, Letter(b"x", 7, 3, 0, 5, '{"a": "b"}'))
    (message,) = await broker.queues.take(jobs)
    assert [message.message_id] == list(stored.ids)
    assert (message.body, message.priority, message.sender_id, message.context) == (b"x", 7, 3, 5)
    assert message.headers == '{"a": "b"}'
    assert message.time > 1_600_000_000_000_000


async def test_orders(broker: Broker) -> None:
    """A queue is read by priority, oldest first within one, or by age."""
    jobs = await queue(broker)
    for _ in range(2):
        await put(broker, jobs, Letter(b"a", 1), Letter(b"b", 9), Letter(b"c", 5), Letter(b"d", 9))
        if _ == 0:
            assert bodies(await broker.queues.take(jobs, limit=9)) == [b"b", b"d", b"c", b"a"]
    assert bodies(await broker.queues.take(jobs, limit=9, mode=BY_TIME)) == [b"a", b"b", b"c", b"d"]


async def test_remembered_places_skip_nothing(broker: Broker) -> None:
    """However takes of all kinds mix, what was left behind is found by the next."""
    jobs = await queue(broker)
    await put(broker, jobs, Letter(b"a", 5, 1), Letter(b"b", 5, 2), Letter(b"c", 5, 1, 7))
    assert bodies(await broker.queues.take(jobs, sender=2)) == [b"b"]
    assert bodies(await broker.queues.take(jobs)) == [b"a"]
    assert bodies(await broker.queues.take(jobs, 7)) == [b"c"]
    await put(broker, jobs, Letter(b"d", 1), Letter(b"e", 9))
    assert bodies(await broker.queues.take(jobs, limit=1)) == [b"e"]
    await put(broker, jobs, Letter(b"f", 1), Letter(b"g", 9, 0, 7))
    assert bodies(await broker.queues.take(jobs, 7, limit=9)) == [b"g", b"d", b"f"]


async def test_others_put_back_what_they_took(
    broker: Broker, other: Connection, observer: Connection
) -> None:
    """A message that an application takes and rolls back is found again, in its place."""
    jobs = await queue(broker)
    await put(broker, jobs, b"a", b"b")
    await other.execute("begin")
    await other.execute("select * from nuncius.read_message_by_priority($1, 0, 0)", jobs)
    taking = start(broker.queues.take(jobs, limit=2))
    await until_somebody_waits(observer, "nuncius put and take")
    await other.execute("rollback")
    assert bodies(await taking) == [b"a", b"b"]


async def test_missing_queue(broker: Broker) -> None:
    """Putting into a queue that does not exist is an error, and does not hurt others in the batch."""
    jobs = await queue(broker)
    bad = start(put(broker, 999, b"x"))
    good = start(put(broker, jobs, b"x"))
    with pytest.raises(NoSuchQueue):
        await bad
    assert len((await good).ids) == 1
    with pytest.raises(NoSuchQueue):
        await broker.queues.find("nothing")
    with pytest.raises(NoSuchQueue):
        await broker.queues.find_by_id(999)
    with pytest.raises(NoSuchQueue):
        await broker.queues.delete(999)


async def test_counts(broker: Broker) -> None:
    """What a publisher puts again is not stored again; of a partial resend the rest is."""
    jobs = await queue(broker)
    alice = await broker.publishers.find("alice", lasting=True)
    first = await put(broker, jobs, b"1", b"2", publisher=alice, count=1)
    assert (len(first.ids), first.skipped) == (2, 0)
    again = await put(broker, jobs, b"1", b"2", b"3", publisher=alice, count=1)
    assert (len(again.ids), again.skipped) == (1, 2)
    assert await broker.publishers.last_count("alice", "queue", "jobs") == 3
    assert bodies(await broker.queues.take(jobs, limit=9)) == [b"1", b"2", b"3"]


async def test_counts_in_one_batch(broker: Broker, other: Connection, observer: Connection) -> None:
    """Messages of several publishers, with resends among them, keep their answers apart in a batch."""
    jobs = await queue(broker)
    alice = await broker.publishers.find("alice", lasting=True)
    bob = await broker.publishers.find("bob", lasting=True)
    await other.execute("begin")
    await other.execute("select nuncius.put_message($1, 0, 0, 0, 5, 'held')", jobs)
    calls: list[Any] = [
        start(put(broker, jobs, b"a1", publisher=alice, count=1)),
        start(put(broker, jobs, b"b1", b"b2", publisher=bob, count=1)),
        start(put(broker, jobs, b"a2", publisher=alice, count=2)),
        start(put(broker, jobs, b"x")),
        start(put(broker, jobs, b"a1", b"a2", b"a3", publisher=alice, count=1)),
        start(put(broker, jobs, b"b2", publisher=bob, count=2)),
    ]
    await until_somebody_waits(observer, "nuncius put and take")
    await other.execute("commit")
    answers = await asyncio.gather(*calls)
    assert [(len(a.ids), a.skipped) for a in answers] == [
        (1, 0), (2, 0), (1, 0), (1, 0), (1, 2), (0, 1),
    ]  # fmt: skip
    taken = await broker.queues.take(jobs, limit=20)
    ids = {message.message_id: message.body for message in taken}
    assert [[ids[i] for i in a.ids] for a in answers] == [
        [b"a1"], [b"b1", b"b2"], [b"a2"], [b"x"], [b"a3"], [],
    ]  # fmt: skip
    assert sorted(ids.values()) == [b"a1", b"a2", b"a3", b"b1", b"b2", b"held", b"x"]


async def test_busy_queue_keeps_a_publishers_order(
    broker: Broker, other: Connection, observer: Connection
) -> None:
    """While an application's transaction holds a queue, others go on, and nothing overtakes in it."""
    jobs, more = await queue(broker), await queue(broker, "more")
    alice = await broker.publishers.find("alice", lasting=True)
    await other.execute("begin")
    await other.execute("select nuncius.put_message($1, 0, 0, 0, 5, 'held')", jobs)
    held = []
    for n in range(1, 6):
        held.append(start(put(broker, jobs, b"%d" % n, publisher=alice, count=n)))
        await put(broker, more, b"x", publisher=alice, count=n)
    await until_somebody_waits(observer, "nuncius put and take")
    assert not any(call.done() for call in held)
    await other.execute("commit")
    assert [answer.skipped for answer in await asyncio.gather(*held)] == [0] * 5
    assert bodies(await broker.queues.take(jobs, limit=9)) == [b"held", b"1", b"2", b"3", b"4", b"5"]
    assert len(await broker.queues.take(more, limit=9)) == 5


async def test_into_several_queues(broker: Broker) -> None:
    """One message into several queues: all of them or none, and once for a publisher's count."""
    one, two = await queue(broker, "one"), await queue(broker, "two")
    alice = await broker.publishers.find("alice", lasting=True)
    waiting = start(broker.queues.take(two, wait=60))
    await until_waiting_for(broker, two)
    stored = await broker.queues.put_into_all([one, two, one], Letter(b"x"), publisher=alice, count=1)
    assert len(stored.ids) == 2
    assert bodies(await waiting) == [b"x"]
    again = await broker.queues.put_into_all([one, two], Letter(b"x"), publisher=alice, count=1)
    assert (list(again.ids), again.skipped) == ([], 1)
    with pytest.raises(NoSuchQueue, match="999"):
        await broker.queues.put_into_all([one, 999], Letter(b"y"), publisher=alice, count=2)
    assert bodies(await broker.queues.take(one, limit=9)) == [b"x"]
    assert await broker.queues.take(two) == []
    with pytest.raises(InvalidInput):
        await broker.queues.put_into_all([], Letter(b"y"))


async def test_request_and_reply(broker: Broker) -> None:
    """An answer reaches the one who asked, by the context of the request."""
    jobs = await queue(broker)
    asking = [start(broker.queues.ask(jobs, Letter(b"q%d" % n, sender=n), wait=60)) for n in (1, 2)]
    requests = await broker.queues.take(jobs, limit=2, wait=60, mode=BY_TIME)
    if len(requests) < 2:
        requests += await broker.queues.take(jobs, wait=60)
    assert len({request.context for request in requests}) == 2
    for request in reversed(requests):
        await put(
            broker,
            jobs,
            Letter(b"re " + request.body, 5, 9, request.sender_id, request.context),
        )
    assert [bodies(await each) for each in asking] == [[b"re q1"], [b"re q2"]]
    with pytest.raises(InvalidInput):
        await broker.queues.ask(jobs, Letter(b"q"), wait=0)
    assert await broker.queues.ask(jobs, Letter(b"q", sender=1), wait=0.05) == []


async def test_looking_after(broker: Broker) -> None:
    """Queues are created, listed with what is in them, browsed, purged and deleted."""
    jobs = await queue(broker)
    with pytest.raises(AlreadyExists):
        await broker.queues.create("jobs")
    await put(broker, jobs, b"a", b"b", Letter(b"c", receiver=4))
    (info,) = await broker.queues.info()
    assert (info.queue_id, info.name, info.depth) == (jobs, "jobs", 3)
    assert info.oldest is not None
    first = await broker.queues.browse(jobs, limit=2)
    assert bodies(first) == [b"a", b"b"]
    assert bodies(await broker.queues.browse(jobs, after=first[-1].message_id)) == [b"c"]
    assert [each.name for each in await broker.queues.active(4)] == ["jobs"]
    assert await broker.queues.purge(jobs) == 3
    assert await broker.queues.active(4) == []
    await broker.queues.delete(jobs)
    assert await broker.queues.all() == []


async def test_a_queue_made_again(broker: Broker) -> None:
    """A queue that was deleted and made again under the same name is another one."""
    first = await queue(broker)
    assert (await broker.queues.names.find("jobs")).queue_id == first
    await broker.queues.delete(first)
    second = await queue(broker)

    async def found() -> bool:
        return (await broker.queues.names.find("jobs")).queue_id == second

    await until(found)


async def test_killed_while_putting(broker: Broker, other: Connection, observer: Connection) -> None:
    """A counted put whose connection is killed in flight is stored, and once."""
    jobs = await queue(broker)
    alice = await broker.publishers.find("alice", lasting=True)
    await other.execute("begin")
    await other.execute("select nuncius.put_message($1, 0, 0, 0, 5, 'held')", jobs)
    counted = start(put(broker, jobs, b"x", publisher=alice, count=1))
    await until_somebody_waits(observer, "nuncius put and take")
    await observer.fetch(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'nuncius put and take' and wait_event_type = 'Lock'"
    )
    await until_somebody_waits(observer, "nuncius put and take")
    await other.execute("commit")
    stored = await counted
    assert (len(stored.ids), stored.skipped) == (1, 0)
    assert bodies(await broker.queues.take(jobs, limit=9)) == [b"held", b"x"]


async def test_several_make_sure_of_a_queue_at_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has made the queue has it, whatever somebody found out who looked before."""
    queues, names = broker.queues, broker.queues.names
    create, find = queues.create, queues.find
    nothing, made = asyncio.Event(), asyncio.Event()
    early: list[asyncio.Future[Any]] = []

    async def slow(name: str) -> Queue:
        try:
            return await find(name)
        except NoSuchQueue:
            if early:
                nothing.set()
                await made.wait()
            raise

    async def beside(name: str, *, caller: Caller) -> Queue:
        early.append(start(names.find(name)))
        await nothing.wait()
        queue = await create(name, caller=caller)
        made.set()
        return queue

    monkeypatch.setattr(names, "_look_up", slow)
    monkeypatch.setattr(queues, "create", beside)
    assert (await queues.ensure("new")).name == "new"
    with pytest.raises(NoSuchQueue):
        await early[0]


async def test_who_gives_up_just_when_a_message_comes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a reader was given in the very moment in which it gave up goes back into the queue."""
    jobs = await queue(broker)

    def new() -> tuple[asyncio.Future[Any], Callable[[Any], None]]:
        taken, done = unpatched()

        def arrive(result: Any) -> None:
            done(result)
            taking.cancel()

        return taken, arrive

    unpatched = future.new
    with monkeypatch.context() as patched:
        patched.setattr(future, "new", new)
        taking = start(broker.queues.take(jobs, wait=60))
        await until_waiting_for(broker, jobs)
    await put(broker, jobs, b"x")
    with pytest.raises(asyncio.CancelledError):
        await taking
    async with asyncio.timeout(60):
        assert bodies(await broker.queues.take(jobs, wait=60)) == [b"x"]
