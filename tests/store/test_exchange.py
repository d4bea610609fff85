"""Putting and taking in one transaction."""

import asyncpg
import pytest

from nuncius.store.calls.exchanging import ExchangeCall, PutsAndTakes, is_take
from nuncius.store.calls.putting import Letter, MissingQueues, PutCall, Stored
from nuncius.store.calls.taking import Again, Message, TakeCall
from nuncius.store.combiner.combiner import Detour
from nuncius.store.driver import Connection
from store.queue_sql import queue


def putting(queue_id: int, *letters: Letter | bytes) -> PutCall:
    made = [Letter(each) if isinstance(each, bytes) else each for each in letters]
    return PutCall(lambda _: None, None, queue_id, made, None, 0, 1)


def taking(queue_id: int, *, limit: int = 1, receiver: int = 0, stalled: bool = False) -> TakeCall:
    return TakeCall(lambda _: None, None, queue_id, receiver, 0, 0, 1, limit, is_stalled=lambda: stalled)


def bodies(messages: list[Message]) -> list[bytes]:
    return [message.body for message in messages]


async def test_a_take_sees_what_is_put_with_it(connection: Connection) -> None:
    """One call of the store for both; what is taken is what was stored, with its id."""
    jobs = await queue(connection)
    calls: list[ExchangeCall] = [
        putting(jobs, b"x"),
        putting(jobs, Letter(b"y", receiver=7)),
        taking(jobs),
        taking(jobs, receiver=7),
    ]
    first, second, anyones, own = await PutsAndTakes().carry_out(connection, calls, False)
    assert bodies(anyones) == [b"x"]
    assert bodies(own) == [b"y"]
    assert [anyones[0].message_id, own[0].message_id] == [*first.ids, *second.ids]
    assert await connection.fetchval("select count(*) from nuncius.messages") == 0


async def test_what_was_there_comes_first(connection: Connection) -> None:
    """Order is that of the queue, not of the call: by priority, and by age within one."""
    jobs = await queue(connection)
    exchange = PutsAndTakes()
    await exchange.carry_out(connection, [putting(jobs, b"old", Letter(b"urgent", 9))], False)
    new, taken = await exchange.carry_out(connection, [putting(jobs, b"new"), taking(jobs, limit=2)], False)
    assert isinstance(new, Stored)
    assert bodies(taken) == [b"urgent", b"old"]
    (rest,) = await exchange.carry_out(connection, [taking(jobs, limit=2)], False)
    assert bodies(rest) == [b"new"]


async def test_one_of_both_is_refused(connection: Connection) -> None:
    """A queue that is not there concerns only those who name it."""
    jobs = await queue(connection)
    calls: list[ExchangeCall] = [
        putting(jobs + 1, b"lost"),
        putting(jobs, b"x"),
        taking(jobs + 1),
        taking(jobs),
    ]
    lost, stored, nothing, taken = await PutsAndTakes().carry_out(connection, calls, False)
    assert lost == nothing == MissingQueues((jobs + 1,))
    assert isinstance(stored, Stored)
    assert bodies(taken) == [b"x"]


@pytest.mark.parametrize(
    ("procedure", "expected"),
    [
        ("put_message($1, 0, 0, 0, 5, 'held')", [Detour.BUSY, []]),
        ("read_message_by_priority($1, 0, 0)", [Stored, Detour.BUSY]),
    ],
)
async def test_one_of_both_is_busy(
    dsn: str, connection: Connection, procedure: str, expected: list[object]
) -> None:
    """Somebody's transaction that puts does not keep takes waiting, nor one that takes the puts."""
    jobs = await queue(connection)
    other = await asyncpg.connect(dsn)
    await other.execute("begin")
    await other.execute(f"select nuncius.{procedure}", jobs)
    await connection.execute("set lock_timeout = '1ms'")
    results = await PutsAndTakes().carry_out(connection, [putting(jobs, b"x"), taking(jobs)], False)
    assert [type(each) if isinstance(each, Stored) else each for each in results] == expected
    await other.execute("rollback")
    await other.close()


async def test_a_stalled_reader(connection: Connection) -> None:
    """What is put is stored, and stays for who reads."""
    jobs = await queue(connection)
    calls: list[ExchangeCall] = [putting(jobs, b"x"), taking(jobs, stalled=True)]
    stored, nothing = await PutsAndTakes().carry_out(connection, calls, False)
    assert isinstance(stored, Stored)
    assert nothing is Again.STALLED
    assert await connection.fetchval("select count(*) from nuncius.messages") == 1


async def test_all_or_nothing(connection: Connection) -> None:
    """When a message cannot be stored, nothing is taken either: the batch is tried in parts then."""
    jobs = await queue(connection)
    exchange = PutsAndTakes()
    await exchange.carry_out(connection, [putting(jobs, b"old")], False)
    with pytest.raises(asyncpg.DataError):
        await exchange.carry_out(
            connection, [putting(jobs, Letter(b"x", headers="no JSON")), taking(jobs)], False
        )
    (taken,) = await exchange.carry_out(connection, [taking(jobs)], False)
    assert bodies(taken) == [b"old"]


def test_puts_come_first() -> None:
    """A batch is sorted so, and otherwise stays in order."""
    calls: list[ExchangeCall] = [taking(1), putting(2, b""), taking(3), putting(4, b"")]
    assert [call.queue_id for call in sorted(calls, key=is_take)] == [2, 4, 1, 3]
