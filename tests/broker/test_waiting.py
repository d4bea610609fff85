"""Waiting readers of queues: woken by what fits them, and a message never goes to who has gone."""

import asyncio
from typing import Any

import pytest

from broker.inside import (
    bodies,
    gate_takes,
    put,
    queue,
    start,
    until_waiting_for,
    waiting,
)
from nuncius.broker import Broker
from nuncius.broker.model import BY_TIME, Letter
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
    looks = 0
    room = broker.queues._room  # noqa: SLF001
    submit = room._taking.submit  # noqa: SLF001

    def counted(call: Any) -> None:
        nonlocal looks
        looks += 1
        submit(call)

    room._taking.submit = counted  # type: ignore[method-assign]  # noqa: SLF001
    await put(broker, jobs, b"x")
    await until(lambda: any(reader.done() for reader in readers))
    assert looks == 1
    for reader in readers:
        reader.cancel()


async def test_many_messages_wake_many(broker: Broker) -> None:
    """Several messages at once are shared out to as many readers."""
    jobs = await queue(broker)
    readers = [start(broker.queues.take(jobs, wait=60)) for _ in range(5)]
    await until_waiting_for(broker, jobs, 5)
    await put(broker, jobs, *(b"%d" % n for n in range(5)))
    async with asyncio.timeout(10):
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
    await put(broker, jobs, b"x")
    gate.set()
    async with asyncio.timeout(10):
        assert bodies(await taking) == [b"x"]


async def looked(broker: Broker) -> bool:
    """Whether PostgreSQL has answered a take; the gate keeps the answer."""
    rows = await broker._store.query(  # noqa: SLF001
        "select 1 from pg_stat_activity where application_name = 'nuncius take'"
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
    async with asyncio.timeout(10):
        assert bodies(await next_one) == [b"x"]


async def test_a_wake_up_is_handed_on(broker: Broker) -> None:
    """A reader that leaves after it was called for a message hands the call on to the next."""
    jobs = await queue(broker)
    gate = gate_takes(broker)
    leaving = start(broker.queues.take(jobs, wait=60))
    staying = start(broker.queues.take(jobs, wait=60))
    await until(lambda: looked(broker))
    await put(broker, jobs, b"x")
    leaving.cancel()
    await asyncio.wait([leaving])
    gate.set()
    async with asyncio.timeout(10):
        assert bodies(await staying) == [b"x"]


async def test_time_out_while_looking(broker: Broker, other: Connection) -> None:
    """When the time is up during a look, that look has the last word: nothing is taken and thrown away."""
    jobs = await queue(broker)
    gate = gate_takes(broker)
    taking = start(broker.queues.take(jobs, wait=0.05))
    await until(lambda: looked(broker))
    await put(broker, jobs, b"x")
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
    await until_somebody_waits(observer, "nuncius take")
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
