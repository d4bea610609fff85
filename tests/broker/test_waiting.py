"""Waiting readers of queues: woken by what fits them, and a message never goes to who has gone."""

import asyncio
from typing import Any

import pytest

from broker.inside import (
    bodies,
    count_looks,
    gate_takes,
    put,
    put_beside,
    queue,
    start,
    until_waiting_for,
    waiting,
)
from nuncius.broker import Broker
from nuncius.broker.errors import NoSuchQueue
from nuncius.broker.model import BY_TIME, Letter, Message
from nuncius.broker.queues.waiter import FEW
from nuncius.store.driver import Connection
from racing import until, until_somebody_waits


async def test_a_put_wakes_a_waiting_take(broker: Broker) -> None:
    """A take that found nothing gets the message as soon as it is put."""
    jobs = await queue(broker)
    taking = start(broker.queues.take(jobs, wait=60))
    await until_waiting_for(broker, jobs)
    await put(broker, jobs, b"x")
    assert bodies(await taking) == [b"x"]
    assert waiting(broker, jobs) == 0


async def test_time_out(broker: Broker) -> None:
    """A take that waited long enough gets an empty list; one that does not wait gets it at once."""
    jobs = await queue(broker)
    assert await broker.queues.take(jobs) == []
    assert await broker.queues.take(jobs, wait=0.05) == []
    assert waiting(broker, jobs) == 0


async def test_a_queue_that_is_deleted(broker: Broker, second: Broker) -> None:
    """Who waits for messages of a queue that is deleted, on whichever node, is told so at once."""
    jobs = await queue(broker)
    readers = [start(each.queues.take(jobs, wait=3600)) for each in (broker, second)]
    await until_waiting_for(broker, jobs)
    await until_waiting_for(second, jobs)
    await second.queues.delete(jobs)
    for reader in readers:
        with pytest.raises(NoSuchQueue, match=f"there is no queue {jobs}"):
            await asyncio.wait_for(reader, 60)
    with pytest.raises(NoSuchQueue):
        await broker.queues.take(jobs)


async def test_large_messages_come_in_several_answers(broker: Broker) -> None:
    """What is taken at a time is bounded in bytes, whatever the limit; everybody who asks gets his own."""
    jobs = await queue(broker)
    large = 3 << 20
    for n in range(8):
        await put(broker, jobs, bytes([n]) * large)
    assert [body[0] for body in bodies(await broker.queues.take(jobs, limit=1000))] == [0, 1]
    readers = [start(broker.queues.take(jobs, receiver)) for receiver in range(6)]
    got = [bodies(await reader) for reader in readers]
    assert sorted(body[0] for (body,) in got) == [2, 3, 4, 5, 6, 7]
    assert await broker.queues.take(jobs) == []


async def test_who_does_not_read_gets_nothing_more(broker: Broker) -> None:
    """A stalled reader is passed over until it resumes, and does not keep messages from others."""
    jobs = await queue(broker)
    stalled = True
    got: list[Any] = []
    waiter = broker.queues.take_soon(jobs, 0, got.append, wait=60, is_stalled=lambda: stalled)
    await until_waiting_for(broker, jobs)
    staying = start(broker.queues.take(jobs, wait=60))
    await until_waiting_for(broker, jobs, 2)
    await put(broker, jobs, b"x")
    assert bodies(await staying) == [b"x"]
    await put(broker, jobs, b"y")
    await until_waiting_for(broker, jobs)
    assert got == []
    stalled = False
    broker.queues.resume(waiter)
    await until(lambda: got)
    assert bodies(got[0]) == [b"y"]


async def test_the_fitting_reader_is_woken(broker: Broker) -> None:
    """A message wakes the first reader whom it fits: by receiver, sender and context."""
    jobs = await queue(broker)
    readers = {
        "for 7": start(broker.queues.take(jobs, 7, wait=60)),
        "from 3": start(broker.queues.take(jobs, 8, sender=3, wait=60)),
        "answer": start(broker.queues.take(jobs, 9, context=5, wait=60)),
        "first": start(broker.queues.take(jobs, wait=60)),
        "second": start(broker.queues.take(jobs, wait=60)),
    }
    await until_waiting_for(broker, jobs, 5)

    async def served(who: str, letter: Letter) -> None:
        await put(broker, jobs, letter)
        assert bodies(await readers.pop(who)) == [letter.body]
        await until_waiting_for(broker, jobs, len(readers))
        assert not any(reader.done() for reader in readers.values())

    await served("answer", Letter(b"a", receiver=9, context=5))
    await served("from 3", Letter(b"b", sender=3, receiver=8))
    await served("for 7", Letter(b"c", receiver=7, context=5))
    await served("first", Letter(b"d", context=6))
    await served("second", Letter(b"e", sender=3))


async def test_a_thousand_readers_do_not_all_run(broker: Broker) -> None:
    """One message makes one reader look, not all of them."""
    jobs = await queue(broker)
    readers = [start(broker.queues.take(jobs, wait=60)) for _ in range(50)]
    await until_waiting_for(broker, jobs, 50)
    looks = count_looks(broker)
    await put(broker, jobs, b"x")
    await until(lambda: any(reader.done() for reader in readers))
    assert looks() == 1
    for reader in readers:
        reader.cancel()


async def test_a_reader_travels_with_its_message(broker: Broker) -> None:
    """Put and taken with one commit: the reader is called when the message sets out."""
    jobs = await queue(broker)
    reading = start(broker.queues.take(jobs, wait=60))
    await until_waiting_for(broker, jobs)
    batches = broker.queues._room._taking.batches  # noqa: SLF001
    await put(broker, jobs, b"x")
    assert bodies(await reading) == [b"x"]
    assert broker.queues._room._taking.batches == batches + 1  # noqa: SLF001


async def test_who_takes_many_holds_nobody_up(broker: Broker) -> None:
    """A reader of many has a lane of its own, and is called when the message has arrived."""
    jobs = await queue(broker)
    reading = start(broker.queues.take(jobs, limit=FEW + 1, wait=60))
    await until_waiting_for(broker, jobs)
    looks = count_looks(broker)
    await put(broker, jobs, b"a", b"b")
    async with asyncio.timeout(60):
        assert bodies(await reading) == [b"a", b"b"]
    assert looks() == 0, "not beside the puts"


async def test_a_reader_that_gets_another_message_hands_the_call_on(
    broker: Broker, other: Connection
) -> None:
    """Who was called for a message and got an older one has not missed it: it is for the next."""
    jobs = await queue(broker)
    first = start(broker.queues.take(jobs, wait=60))
    await until_waiting_for(broker, jobs)
    second = start(broker.queues.take(jobs, wait=60))
    await until_waiting_for(broker, jobs, 2)
    await other.execute(
        "insert into nuncius.messages (queue_id, priority, message) values ($1, 5, 'silent')", jobs
    )
    await put(broker, jobs, b"x")
    async with asyncio.timeout(60):
        assert bodies(await first) == [b"silent"]
        assert bodies(await second) == [b"x"]


async def test_who_takes_much_leaves_the_others_in_peace(broker: Broker) -> None:
    """What a reader was called for and another has taken is not looked for again."""
    jobs = await queue(broker)
    greedy = start(broker.queues.take(jobs, limit=10, wait=60))
    await until_waiting_for(broker, jobs)
    patient = start(broker.queues.take(jobs, wait=60))
    await until_waiting_for(broker, jobs, 2)
    looks = count_looks(broker)
    await asyncio.gather(put(broker, jobs, b"a"), put(broker, jobs, b"b"))
    assert bodies(await greedy) == [b"a", b"b"]
    await until_waiting_for(broker, jobs, 1)
    assert looks() == 2
    patient.cancel()


async def test_news_are_more_than_one_message(broker: Broker) -> None:
    """A reader who expects a message and hears of other news looks again, whoever takes that message."""
    jobs = await queue(broker)
    gate = gate_takes(broker)
    reading = start(broker.queues.take(jobs, wait=60))
    room = broker.queues._room  # noqa: SLF001
    await until(lambda: room._waiters.get(jobs))  # noqa: SLF001
    (waiter,) = room._waiters[jobs]  # noqa: SLF001
    await until(lambda: looked(broker))
    room.arrived(jobs, [Letter(b"a")], [1000])
    await broker._store.execute(  # noqa: SLF001
        "insert into nuncius.messages (queue_id, priority, message) values ($1, 5, 'b') returning 1", jobs
    )
    room.look_again(jobs)
    room._seen(waiter, [Message(1000, jobs, 0, 0, 0, 5, 0, b"a", None)])  # noqa: SLF001
    gate.set()
    async with asyncio.timeout(60):
        assert bodies(await reading) == [b"b"]


async def test_a_reader_that_is_called_too_early(
    broker: Broker, other: Connection, observer: Connection
) -> None:
    """When its message is held up on the way, the reader waits on, and gets it when it is there."""
    jobs = await queue(broker)
    reading = start(broker.queues.take(jobs, wait=60))
    await until_waiting_for(broker, jobs)
    await other.execute("begin")
    await other.execute("select nuncius.put_message($1, 0, 9, 0, 5, 'for another')", jobs)
    putting = start(put(broker, jobs, b"x"))
    await until_somebody_waits(observer, "nuncius put and take")
    await until_waiting_for(broker, jobs)
    await other.execute("commit")
    await putting
    async with asyncio.timeout(60):
        assert bodies(await reading) == [b"x"]


async def test_a_reader_that_leaves_on_the_way(broker: Broker) -> None:
    """The message that travelled with it goes back."""
    jobs = await queue(broker)
    leaving = start(broker.queues.take(jobs, wait=60))
    await until_waiting_for(broker, jobs)
    gate = gate_takes(broker)
    putting = start(put(broker, jobs, b"x"))
    await until(lambda: waiting(broker, jobs) == 0)
    leaving.cancel()
    await asyncio.wait([leaving])
    gate.set()
    await putting
    async with asyncio.timeout(60):
        assert bodies(await broker.queues.take(jobs, wait=60)) == [b"x"]


async def test_many_messages_wake_many(broker: Broker) -> None:
    """Several messages at once are shared out to as many readers."""
    jobs = await queue(broker)
    readers = [start(broker.queues.take(jobs, wait=60)) for _ in range(5)]
    await until_waiting_for(broker, jobs, 5)
    await put(broker, jobs, *(b"%d" % n for n in range(5)))
    async with asyncio.timeout(60):
        got = [bodies(await reader) for reader in readers]
    assert sorted(got) == [[b"%d" % n] for n in range(5)]


async def test_one_reader_takes_several(broker: Broker) -> None:
    """A reader that wants many gets what is there when it is woken."""
    jobs = await queue(broker)
    taking = start(broker.queues.take(jobs, limit=10, mode=BY_TIME, wait=60))
    await until_waiting_for(broker, jobs)
    await put(broker, jobs, b"a", Letter(b"b", 9), b"c")
    assert bodies(await taking) == [b"a", b"b", b"c"]


async def test_put_while_looking(broker: Broker) -> None:
    """A message that is put while a reader looks is not missed."""
    jobs = await queue(broker)
    gate = gate_takes(broker)
    taking = start(broker.queues.take(jobs, wait=60))
    await until(lambda: broker.queues._room._waiters.get(jobs))  # noqa: SLF001
    await until(lambda: looked(broker))
    await put_beside(broker, jobs, b"x")
    gate.set()
    async with asyncio.timeout(60):
        assert bodies(await taking) == [b"x"]


async def looked(broker: Broker) -> bool:
    """Whether PostgreSQL has answered a take; the gate keeps the answer."""
    rows = await broker._store.query(  # noqa: SLF001
        "select 1 from pg_stat_activity where application_name = 'nuncius put and take'"
        " and datname = current_database() and state = 'idle' and query like '%take_many%'"
    )
    return bool(rows)


async def test_a_reader_that_leaves_gets_nothing(broker: Broker) -> None:
    """What was taken for a reader that has gone meanwhile goes back into the queue, as it was."""
    jobs = await queue(broker)
    await put(broker, jobs, Letter(b"x", 7, 3, 8, 5, '{"a": "b"}'))
    gate = gate_takes(broker)
    taking = start(broker.queues.take(jobs, 8, wait=60))
    await until(lambda: looked(broker))
    taking.cancel()
    await asyncio.wait([taking])
    gate.set()

    async def is_back() -> bool:
        return bool(await broker.queues.browse(jobs))

    await until(is_back)
    (message,) = await broker.queues.browse(jobs)
    assert (message.body, message.priority, message.sender_id) == (b"x", 7, 3)
    assert (message.receiver_id, message.context, message.headers) == (8, 5, '{"a": "b"}')


async def test_what_comes_back_wakes_the_next(broker: Broker) -> None:
    """A message that goes back is for the next who waits."""
    jobs = await queue(broker)
    await put(broker, jobs, b"x")
    gate = gate_takes(broker)
    taking = start(broker.queues.take(jobs, wait=60))
    await until(lambda: looked(broker))
    next_one = start(broker.queues.take(jobs, wait=60))
    taking.cancel()
    gate.set()
    async with asyncio.timeout(60):
        assert bodies(await next_one) == [b"x"]


async def test_a_wake_up_is_handed_on(broker: Broker) -> None:
    """A reader that leaves after it was called for a message hands the call on to the next."""
    jobs = await queue(broker)
    gate = gate_takes(broker)
    leaving = start(broker.queues.take(jobs, wait=60))
    staying = start(broker.queues.take(jobs, wait=60))
    await until(lambda: looked(broker))
    await put_beside(broker, jobs, b"x")
    leaving.cancel()
    await asyncio.wait([leaving])
    gate.set()
    async with asyncio.timeout(60):
        assert bodies(await staying) == [b"x"]


async def test_time_out_while_looking(broker: Broker, other: Connection) -> None:
    """When the time is up during a look, that look has the last word: nothing is taken and thrown away."""
    jobs = await queue(broker)
    gate = gate_takes(broker)
    taking = start(broker.queues.take(jobs, wait=0.05))
    await until(lambda: looked(broker))
    await put_beside(broker, jobs, b"x")
    loop = asyncio.get_running_loop()
    passed = loop.create_future()
    loop.call_later(0.1, passed.set_result, None)
    await passed
    gate.set()
    got = bodies(await taking)
    assert got in ([b"x"], [])
    assert await other.fetchval("select count(*) from nuncius.messages") == (0 if got else 1)


async def test_a_locked_queue(broker: Broker, other: Connection, observer: Connection) -> None:
    """While somebody's transaction takes from a queue its readers wait, and those of other queues do not."""
    jobs, more = await queue(broker), await queue(broker, "more")
    await put(broker, jobs, b"a", b"b")
    await put(broker, more, b"x")
    await other.execute("begin")
    await other.execute("select nuncius.read_message_by_priority($1, 0, 0)", jobs)
    held = start(broker.queues.take(jobs, limit=5))
    await until_somebody_waits(observer, "nuncius put and take")
    assert bodies(await broker.queues.take(more)) == [b"x"]
    assert not held.done()
    await other.execute("rollback")
    assert bodies(await held) == [b"a", b"b"]


@pytest.mark.parametrize("readers", [1, 20])
async def test_nothing_is_lost_between_many(broker: Broker, readers: int) -> None:
    """With readers that come, wait, leave and come again, every message is delivered once."""
    jobs = await queue(broker)
    got: list[bytes] = []
    total = 200

    async def read(name: int) -> None:
        n = 0
        while len(got) < total:
            n += 1
            if (name + n) % 3 == 0:
                leaving = start(broker.queues.take(jobs, wait=60))
                await asyncio.sleep(0)
                if leaving.cancel():
                    await asyncio.wait([leaving])
                    continue
            got.extend(bodies(await broker.queues.take(jobs, wait=0.05)))

    async def write() -> None:
        for n in range(total):
            await put(broker, jobs, b"%d" % n)

    async with asyncio.timeout(60):
        await asyncio.gather(write(), *map(read, range(readers)))
    assert sorted(map(int, got)) == list(range(total))
