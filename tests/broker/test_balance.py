"""What a node knows of what is not there: it saves looks, and never hides a message."""

import asyncio
from collections.abc import Sequence

import pytest

from broker.inside import bodies, count_looks, gate_takes, put, put_beside, queue, start, until_waiting_for
from nuncius.broker import Broker
from nuncius.broker.errors import NoSuchQueue
from nuncius.broker.model import Letter, Message
from nuncius.broker.queues.balance import MOST, Balance
from nuncius.store.driver import Connection
from racing import until

FAR_OFF = 9  # a queue's id


async def test_who_would_find_nothing_does_not_look(broker: Broker) -> None:
    """One look for each message: after a look that found nothing, puts and takes are counted."""
    jobs = await queue(broker)
    assert await broker.queues.take(jobs, 7) == []
    looks = count_looks(broker)
    for n in range(5):
        reading = start(broker.queues.take(jobs, 7, wait=60))
        await until_waiting_for(broker, jobs)
        assert looks() == n
        await put(broker, jobs, Letter(b"x", receiver=7 if n % 2 else 0))
        assert bodies(await reading) == [b"x"]
    assert looks() == 5


async def test_a_request_has_no_answer_yet(broker: Broker) -> None:
    """Who asks for the answer to a request that was put here waits for it without a look."""
    jobs = await queue(broker)
    asking = start(broker.queues.ask(jobs, Letter(b"?", sender=3), wait=60))
    (request,) = await broker.queues.take(jobs, wait=60)
    await until_waiting_for(broker, jobs)
    looks = count_looks(broker)
    await put(broker, jobs, Letter(b"!", sender=4, receiver=3, context=request.context))
    assert bodies(await asking) == [b"!"]
    assert looks() == 1


async def test_an_answer_that_is_there(broker: Broker) -> None:
    """It is found at once, however early it came."""
    jobs = await queue(broker)
    await put(broker, jobs, Letter(b"?", sender=3, context=5))
    await put(broker, jobs, Letter(b"!", receiver=3, context=5))
    async with asyncio.timeout(60):
        assert bodies(await broker.queues.take(jobs, 3, context=5, wait=3600)) == [b"!"]


async def test_nobody_is_told_nothing_without_a_look(broker: Broker, other: Connection) -> None:
    """A message of which no news came is found when the time is up."""
    jobs = await queue(broker)
    assert await broker.queues.take(jobs) == []
    await other.execute(
        "insert into nuncius.messages (queue_id, priority, message) values ($1, 5, 'silent')", jobs
    )
    looks = count_looks(broker)
    assert bodies(await broker.queues.take(jobs, wait=0.01)) == [b"silent"]
    assert looks() == 1


async def test_a_reader_that_leaves_before_its_look(broker: Broker) -> None:
    """It takes nothing with it."""
    jobs = await queue(broker)
    assert await broker.queues.take(jobs) == []
    leaving = start(broker.queues.take(jobs, wait=60))
    await until_waiting_for(broker, jobs)
    leaving.cancel()
    await asyncio.wait([leaving])
    await put(broker, jobs, b"x")
    assert bodies(await broker.queues.take(jobs)) == [b"x"]


async def test_put_while_somebody_finds_nothing(broker: Broker) -> None:
    """What comes during a look counts as there, although the look found nothing."""
    jobs = await queue(broker)
    gate = gate_takes(broker)
    looking = start(broker.queues.take(jobs))
    await until(lambda: broker.queues._room._taking.batches)  # noqa: SLF001
    await put_beside(broker, jobs, b"x")
    gate.set()
    got = bodies(await looking)
    if not got:
        async with asyncio.timeout(60):
            got = bodies(await broker.queues.take(jobs, wait=3600))
    assert got == [b"x"]


async def test_other_nodes(broker: Broker, second: Broker) -> None:
    """What another node put is seen here although nothing was there a moment ago."""
    jobs = await queue(broker)
    assert await broker.queues.take(jobs) == []
    for n in range(20):
        await put(second, jobs, b"%d" % n)
        async with asyncio.timeout(60):
            assert bodies(await broker.queues.take(jobs, wait=3600)) == [b"%d" % n]


async def test_a_put_that_fails(broker: Broker) -> None:
    """Then nothing is known any more: it may be there all the same."""
    jobs = await queue(broker)
    assert await broker.queues.take(jobs) == []
    assert known(broker, jobs)
    await broker.queues.delete(jobs)
    with pytest.raises(NoSuchQueue):
        await put(broker, jobs, b"x")
    assert not known(broker, jobs)


def known(broker: Broker, queue_id: int) -> bool:
    return broker.queues._room._balance.is_nothing(queue_id, 0, 0)  # noqa: SLF001


# The counts alone


def taken(receiver: int, context: int = 0) -> Sequence[Message]:
    return [Message(1, FAR_OFF, 0, receiver, context, 5, 0, b"", None)]


def letter(receiver: int, context: int = 0, sender: int = 0) -> Sequence[Letter]:
    return [Letter(b"", sender=sender, receiver=receiver, context=context)]


def empty(receiver: int = 7) -> Balance:
    balance = Balance()
    balance.found_nothing(FAR_OFF, receiver, balance.mark(FAR_OFF, receiver))
    assert balance.is_nothing(FAR_OFF, receiver, 0)
    return balance


def test_at_first_nothing_is_known() -> None:
    balance = Balance()
    assert not balance.is_nothing(FAR_OFF, 0, 0)
    balance.taken(FAR_OFF, taken(0))
    balance.put(FAR_OFF, letter(0))
    balance.taken(FAR_OFF, taken(0))
    assert not balance.is_nothing(FAR_OFF, 0, 0)


def test_what_is_for_anyone_concerns_everybody() -> None:
    balance = empty()
    balance.found_nothing(FAR_OFF, 8, balance.mark(FAR_OFF, 8))
    balance.put(FAR_OFF, letter(8))
    assert [balance.is_nothing(FAR_OFF, reader, 0) for reader in (7, 8, 0)] == [True, False, True]
    balance.put(FAR_OFF, letter(0))
    assert not any(balance.is_nothing(FAR_OFF, reader, 0) for reader in (7, 8, 0))


def test_a_take_that_is_known_before_its_put() -> None:
    """The two come on connections of their own. Meanwhile the reader looks."""
    balance = empty()
    balance.taken(FAR_OFF, taken(7))
    assert not balance.is_nothing(FAR_OFF, 7, 0)
    balance.put(FAR_OFF, letter(7))
    assert balance.is_nothing(FAR_OFF, 7, 0)


def test_a_look_during_which_something_came() -> None:
    """It may have been too early to see that."""
    balance = Balance()
    mark = balance.mark(FAR_OFF, 7)
    balance.put(FAR_OFF, letter(0))
    balance.found_nothing(FAR_OFF, 7, mark)
    assert not balance.is_nothing(FAR_OFF, 7, 0)
    mark = balance.mark(FAR_OFF, 7)
    balance.forget(FAR_OFF)
    balance.put(FAR_OFF, letter(0))
    balance.found_nothing(FAR_OFF, 7, mark)
    assert not balance.is_nothing(FAR_OFF, 7, 0)


def test_answers() -> None:
    balance = Balance()
    balance.asked(FAR_OFF, letter(0, context=5, sender=3))
    assert balance.is_nothing(FAR_OFF, 3, 5)
    assert not balance.is_nothing(FAR_OFF, 3, 6)
    assert not balance.is_nothing(FAR_OFF, 3, 0)
    balance.put(FAR_OFF, letter(3, context=5))
    balance.asked(FAR_OFF, letter(0, context=5, sender=3))  # a second one changes nothing about the first
    assert not balance.is_nothing(FAR_OFF, 3, 5)
    balance.taken(FAR_OFF, taken(3, context=5))
    assert not balance.is_nothing(FAR_OFF, 3, 5)


@pytest.mark.parametrize("queue_id", [FAR_OFF, None])
def test_news_of_others(queue_id: int | None) -> None:
    balance = empty()
    balance.forget(queue_id)
    assert not balance.is_nothing(FAR_OFF, 7, 0)


def test_memory_is_bounded() -> None:
    """Where there is too much to know, the node begins again."""
    balance = empty()
    for receiver in range(MOST):
        balance.put(FAR_OFF, letter(receiver + 100))
    assert not balance.is_nothing(FAR_OFF, 7, 0)
    balance = empty()
    for queue_id in range(MOST):
        balance.mark(queue_id + 100, 1)
    assert not balance.is_nothing(FAR_OFF, 7, 0)


def test_what_was_answered_takes_no_memory() -> None:
    balance = empty()
    for context in range(1, MOST):
        balance.asked(FAR_OFF, letter(0, context, sender=3))
        balance.asked(FAR_OFF, letter(3, context, sender=4))
        balance.put(FAR_OFF, letter(3, context, sender=4))
        balance.taken(FAR_OFF, taken(3, context))
    assert balance.is_nothing(FAR_OFF, 7, 0)
