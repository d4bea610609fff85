"""Queues in SQL: strict order, no message twice, no false "nothing there"."""

import asyncio
import random
from collections import Counter

import asyncpg
import pytest

from fix_connections import Connect
from nuncius.store.calls.taking import BY_PRIORITY, BY_TIME, TakeCall, Taker
from nuncius.store.driver import Connection
from racing import until_waiting
from store.publishing_sql import publisher
from store.queue_sql import Ask, Run, depth, put_many, queue, take_many, taken

SENT_BEFORE, NO_QUEUE, BUSY = -1, -2, -3
MISSING, MORE = -1, -2  # in place of the number of a request to take


# Putting


async def test_ids_are_in_the_order_given(connection: Connection) -> None:
    """The answer has the ids of all messages, in the order given."""
    jobs, more = await queue(connection), await queue(connection, "more")
    outcome = await put_many(connection, Run(more, [b"a", b"b"]), Run(jobs, [b"c"]), Run(more, [b"d"]))
    assert outcome.codes == [0, 0, 0]
    rows = await connection.fetch("select message, message_id from nuncius.messages")
    ids = {row["message"]: row["message_id"] for row in rows}
    assert outcome.ids == [ids[b"a"], ids[b"b"], ids[b"c"], ids[b"d"]]
    assert outcome.ids == sorted(outcome.ids)


async def test_missing_queue(connection: Connection) -> None:
    """A queue that does not exist is told apart; the others get their messages."""
    jobs = await queue(connection)
    outcome = await put_many(connection, Run(99, [b"x", b"y"]), Run(jobs, [b"a"]))
    assert outcome.codes == [NO_QUEUE, 0]
    assert len(outcome.ids) == 1
    assert await taken(connection, Ask(jobs)) == [b"a"]


async def test_all_or_nothing(connection: Connection) -> None:
    """An atomic call stores nothing when one of its queues does not exist."""
    jobs = await queue(connection)
    outcome = await put_many(connection, Run(jobs, [b"a"]), Run(99, [b"a"]), atomic=True)
    assert outcome.codes == [0, NO_QUEUE]
    assert outcome.ids == []
    assert await depth(connection, jobs) == 0


async def test_a_count_is_stored_once(connection: Connection) -> None:
    """What a publisher puts again under the same count is not stored again; a rest is."""
    jobs, alice = await queue(connection), await publisher(connection)
    first = Run(jobs, [b"1", b"2"], publisher=alice, count=1)
    assert (await put_many(connection, first)).codes == [0]
    assert await put_many(connection, first) == ([SENT_BEFORE], [2], [])
    rest = Run(jobs, [b"2", b"3", b"4"], publisher=alice, count=2)
    outcome = await put_many(connection, rest)
    assert (outcome.codes, outcome.skipped, len(outcome.ids)) == ([0], [1], 2)
    assert await taken(connection, Ask(jobs, limit=9)) == [b"1", b"2", b"3", b"4"]


async def test_duplicates_within_a_call(connection: Connection) -> None:
    """Runs of one call count against each other in their order."""
    jobs, alice = await queue(connection), await publisher(connection)
    bob = await publisher(connection, "bob")
    outcome = await put_many(
        connection,
        Run(jobs, [b"1", b"2"], publisher=alice, count=1),
        Run(jobs, [b"b"], publisher=bob, count=1),
        Run(jobs, [b"2", b"3"], publisher=alice, count=2),
        Run(jobs, [b"1"], publisher=alice, count=1),
        Run(jobs, [b"x"]),
        Run(jobs, [b"3", b"4"], publisher=alice, count=3),
    )
    assert outcome.codes == [0, 0, 0, SENT_BEFORE, 0, 0]
    assert outcome.skipped == [0, 0, 1, 1, 0, 1]
    assert len(outcome.ids) == 6
    bodies = await taken(connection, Ask(jobs, limit=9))
    assert bodies == [b"1", b"2", b"b", b"3", b"x", b"4"]


async def test_counts_are_per_queue(connection: Connection) -> None:
    """The same count is another one in another queue."""
    jobs, more = await queue(connection), await queue(connection, "more")
    alice = await publisher(connection)
    outcome = await put_many(
        connection,
        Run(jobs, [b"a"], publisher=alice, count=1),
        Run(more, [b"a"], publisher=alice, count=1),
    )
    assert outcome.codes == [0, 0]
    assert await connection.fetchval("select nuncius.last_count('alice', 'queue', 'more')") == 1


async def test_a_resend_waits_for_the_first_attempt(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """Two attempts at the same count at the same time store one message."""
    jobs, alice = await queue(connection), await publisher(connection)
    attempt = Run(jobs, [b"x"], publisher=alice, count=1)
    await connection.execute("begin")
    await put_many(connection, attempt)
    again = asyncio.ensure_future(put_many(other, attempt))
    await until_waiting(observer, other.get_server_pid())
    await connection.execute("commit")
    assert (await again).codes == [SENT_BEFORE]
    assert await depth(observer, jobs) == 1


async def test_busy_queue_is_told_apart(connection: Connection, other: Connection) -> None:
    """Who does not wait learns which queues are held; the others get their messages."""
    jobs, more = await queue(connection), await queue(connection, "more")
    await connection.execute("begin")
    await put_many(connection, Run(jobs, [b"x"]))
    await other.execute("set lock_timeout = '20ms'")
    outcome = await put_many(other, Run(jobs, [b"y"]), Run(more, [b"z"]), wait=False)
    assert outcome.codes == [BUSY, 0]
    await connection.execute("commit")
    assert await taken(other, Ask(jobs, limit=5)) == [b"x"]


async def test_a_queue_deleted_while_a_put_waits(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """A put that waited for a queue to be deleted is told that it does not exist."""
    jobs, alice = await queue(connection), await publisher(connection)
    await connection.execute("begin")
    await connection.execute("select nuncius.delete_queue($1)", jobs)
    late = asyncio.ensure_future(put_many(other, Run(jobs, [b"x"], publisher=alice, count=1)))
    await until_waiting(observer, other.get_server_pid())
    await connection.execute("commit")
    assert (await late).codes == [NO_QUEUE]
    assert await depth(connection, jobs) == 0
    assert await connection.fetchval("select count(*) from nuncius.publisher_counts") == 0


async def test_a_refused_message_refuses_the_call(connection: Connection) -> None:
    """A priority that is not between 1 and 10 is an error, and nothing is stored."""
    jobs = await queue(connection)
    with pytest.raises(asyncpg.CheckViolationError):
        await put_many(connection, Run(jobs, [b"a"]), Run(jobs, [b"b"], priority=11))
    assert await depth(connection, jobs) == 0


@pytest.mark.parametrize(
    ("sizes", "priorities", "messages"),
    [
        ([2], [5], [b"x"]),
        ([1], [5, 5], [b"x", b"y"]),
        ([], [5], [b"x"]),
        ([None], [5], [b"x"]),
        ([-1], [5], [b"x"]),
        ([2], [5], [b"x", b"y"]),
    ],
)
async def test_arrays_that_do_not_go_together(
    connection: Connection, sizes: list[int], priorities: list[int], messages: list[bytes]
) -> None:
    """When one array says more or less than another it is an error: nothing is left out without a word."""
    jobs = await queue(connection)
    call = "select nuncius.put_many($1, null, null, $2, null, null, null, $3, null, $4)"
    with pytest.raises(asyncpg.InvalidParameterValueError, match="do not go together"):
        await connection.execute(call, [jobs], sizes, priorities, messages)


async def test_a_publisher_without_a_count(connection: Connection) -> None:
    """What a publisher did not count is an error, and not taken for sent before."""
    jobs = await queue(connection)
    with pytest.raises(asyncpg.NotNullViolationError):
        await put_many(connection, Run(jobs, [b"a"], publisher=7))


async def test_headers_are_texts(connection: Connection) -> None:
    """Headers that are no object of strings are an error."""
    jobs = await queue(connection)
    call = "select nuncius.put_many($1, null, null, '{1}', null, null, null, '{5}', $2, '{x}')"
    with pytest.raises(asyncpg.InvalidParameterValueError, match="object of strings, not "):
        await connection.execute(call, [jobs], ['{"size": 1}'])


# Taking


async def test_priority_order(connection: Connection) -> None:
    """By priority: the highest first, the oldest first within a priority."""
    jobs = await queue(connection)
    for body, priority in [(b"a5", 5), (b"b9", 9), (b"c5", 5), (b"d1", 1), (b"e9", 9), (b"f10", 10)]:
        await put_many(connection, Run(jobs, [body], priority))
    assert await taken(connection, Ask(jobs)) == [b"f10"]
    assert await taken(connection, Ask(jobs, limit=3)) == [b"b9", b"e9", b"a5"]
    assert await taken(connection, Ask(jobs, limit=9)) == [b"c5", b"d1"]
    assert await taken(connection, Ask(jobs)) == []


async def test_time_order(connection: Connection) -> None:
    """By time: the oldest first, whatever its priority."""
    jobs = await queue(connection)
    for body, priority in [(b"a", 5), (b"b", 9), (b"c", 1), (b"d", 10)]:
        await put_many(connection, Run(jobs, [body], priority))
    assert await taken(connection, Ask(jobs, mode=2)) == [b"a"]
    assert await taken(connection, Ask(jobs, mode=2, limit=9)) == [b"b", b"c", b"d"]


@pytest.mark.parametrize("mode", [1, 2])
async def test_receivers(connection: Connection, mode: int) -> None:
    """A receiver sees its own messages and those for anyone, merged in order; nobody else's."""
    jobs = await queue(connection)
    for body, receiver in [(b"a", 0), (b"b", 7), (b"c", 8), (b"d", 0), (b"e", 7)]:
        await put_many(connection, Run(jobs, [body], receiver=receiver))
    assert await taken(connection, Ask(jobs, 7, mode=mode, limit=3)) == [b"a", b"b", b"d"]
    assert await taken(connection, Ask(jobs, 0, mode=mode, limit=9)) == []
    assert await taken(connection, Ask(jobs, 9, mode=mode, limit=9)) == []
    assert await taken(connection, Ask(jobs, 8, mode=mode, limit=9)) == [b"c"]
    assert await taken(connection, Ask(jobs, 7, mode=mode, limit=9)) == [b"e"]


@pytest.mark.parametrize("mode", [1, 2])
async def test_senders(connection: Connection, mode: int) -> None:
    """Who names a sender gets only messages of that sender that it may see."""
    jobs = await queue(connection)
    for body, sender, receiver in [(b"a", 1, 0), (b"b", 2, 7), (b"c", 2, 8), (b"d", 2, 0)]:
        await put_many(connection, Run(jobs, [body], 5, sender, receiver))
    assert await taken(connection, Ask(jobs, 7, sender=2, mode=mode, limit=9)) == [b"b", b"d"]
    assert await taken(connection, Ask(jobs, 7, sender=3, mode=mode)) == []
    assert await taken(connection, Ask(jobs, 0, sender=2, mode=mode)) == []


async def test_contexts(connection: Connection) -> None:
    """Who names a context gets only answers to it, addressed to it; others may take them too."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"other"], receiver=7, context=4, sender=1))
    await put_many(connection, Run(jobs, [b"anyone"], context=3, sender=1))
    await put_many(connection, Run(jobs, [b"mine"], receiver=7, context=3, sender=1))
    assert await taken(connection, Ask(jobs, 8, context=3, limit=9)) == []
    assert await taken(connection, Ask(jobs, 7, context=3, limit=9)) == [b"mine"]
    assert await taken(connection, Ask(jobs, 7, limit=9)) == [b"other", b"anyone"]


async def test_several_requests_in_one_call(connection: Connection) -> None:
    """Requests are served in their order, also several for one queue, and never the same message."""
    jobs, more = await queue(connection), await queue(connection, "more")
    await put_many(connection, Run(jobs, [b"a", b"b", b"c", b"d", b"e"]), Run(more, [b"x", b"y"]))
    rows = await take_many(
        connection,
        Ask(jobs, limit=2),
        Ask(more),
        Ask(jobs, receiver=3, mode=2, limit=1),
        Ask(99),
        Ask(jobs, limit=9),
        Ask(more, limit=9),
    )
    found: dict[int, list[bytes]] = {}
    for row in rows:
        found.setdefault(row["request"], []).append(row["message"])
    assert found == {1: [b"a", b"b"], 2: [b"x"], 3: [b"c"], 5: [b"d", b"e"], 6: [b"y"], MISSING: [None]}


@pytest.mark.parametrize("receivers", [(0, 0, 1, 2, 3), (1, 2, 3, 4, 5)], ids=["anyone", "addressed"])
@pytest.mark.parametrize("seed", range(15))
async def test_requests_together_are_as_one_after_the_other(
    connection: Connection, seed: int, receivers: tuple[int, ...]
) -> None:
    """Whatever is asked for in one call, everybody gets what he would have got had he asked in his turn."""
    dice = random.Random(seed)
    queues = [await queue(connection, name) for name in ("a", "b")]

    def somebody() -> int:
        return dice.choice((0, 0, 1, 2, 3))

    for number in range(40):
        await put_many(
            connection,
            Run(
                dice.choice(queues),
                [b"%d" % number],
                dice.randint(1, 10),
                sender=somebody(),
                receiver=dice.choice(receivers),
                context=somebody(),
            ),
        )
    asks = [
        Ask(
            dice.choice(queues),
            dice.choice((0, *receivers)),
            dice.choice((0, 0, 0, 1, 2)),
            dice.choice((0, 0, 0, 1, 2)),
            dice.choice((1, 2)),
            dice.randint(1, 3),
        )
        for _ in range(20)
    ]
    asks = [ask for ask in asks for _ in range(dice.choice((1, 1, 2)))]
    together = connection.transaction()
    await together.start()
    rows = await take_many(connection, *asks)
    await together.rollback()
    shares: list[list[bytes]] = [[] for _ in asks]
    for row in rows:
        shares[row["request"] - 1].append(row["message"])
    assert shares == [await taken(connection, ask) for ask in asks]
    assert any(shares)


@pytest.mark.parametrize("mode", [1, 2])
async def test_equal_requests_for_answers(connection: Connection, mode: int) -> None:
    """Equal requests for an answer share the answers in their order."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"a", b"b", b"c", b"d"], receiver=7, context=3, sender=1))
    ask = Ask(jobs, 7, context=3, mode=mode)
    rows = await take_many(connection, ask, Ask(jobs), ask, ask)
    assert [(row["request"], row["message"]) for row in rows] == [(1, b"a"), (3, b"b"), (4, b"c")]


@pytest.mark.parametrize("waiting", [1, 40])
async def test_equal_requests_for_many_answers(connection: Connection, waiting: int) -> None:
    """Equal requests for answers share them, however many wait."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"%d" % n for n in range(waiting)]))
    answers = [b"answer %d" % n for n in range(40)]
    await put_many(connection, Run(jobs, answers, receiver=7, context=3, sender=1))
    asks = [Ask(jobs, 7, context=3, limit=limit) for limit in (1, 3, 40)]
    rows = await take_many(connection, *asks)
    shares = [[row["message"] for row in rows if row["request"] == n] for n in (1, 2, 3)]
    assert shares == [answers[:1], answers[1:4], answers[4:]]


async def test_readers_of_their_own_messages_go_together(connection: Connection) -> None:
    """Where nothing is for anyone, all who want what is for themselves get it in one go, not one by one."""
    jobs, readers = await queue(connection), range(1, 41)
    await put_many(connection, *(Run(jobs, [b"%d" % reader], receiver=reader) for reader in readers))
    async with connection.transaction():
        await connection.execute("create temporary table marks (mark integer) on commit drop")
        await connection.execute("insert into marks values (1)")
        rows = await take_many(connection, *(Ask(jobs, reader, mode=2) for reader in readers))
        await connection.execute("insert into marks values (2)")
        # Commands of a transaction that change something are counted: here the one mark and what came before.
        changes = await connection.fetchval("select max(cmin::text::int) - min(cmin::text::int) from marks")
    assert [(row["request"], row["message"]) for row in rows] == [(r, b"%d" % r) for r in readers]
    assert changes == 2


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("limit", [1, 5, 100])
@pytest.mark.parametrize("waiting", [1, 32, 33, 34, 70])
async def test_readers_of_many_messages_of_their_own(
    connection: Connection, waiting: int, limit: int, mode: int
) -> None:
    """However many messages wait for readers who go together, each gets its first ones in the order it
    asks for."""
    jobs = await queue(connection)
    sent: dict[int, list[tuple[int, bytes]]] = {7: [], 8: []}
    for number in range(waiting):
        for reader, mine in sent.items():
            mine.append((1 + (7 * number + reader) % 10, b"%d %d" % (reader, number)))
            await put_many(connection, Run(jobs, [mine[-1][1]], mine[-1][0], receiver=reader))
    rows = await take_many(connection, *(Ask(jobs, reader, mode=mode, limit=limit) for reader in sent))
    for number, mine in enumerate(sent.values(), start=1):
        ordered = sorted(mine, key=lambda one: -one[0]) if mode == 1 else mine
        got = [row["message"] for row in rows if row["request"] == number]
        assert got == [body for _, body in ordered[:limit]]


@pytest.mark.parametrize("seed", range(10))
async def test_answers_that_are_bounded_in_bytes(connection: Connection, seed: int) -> None:
    """Whoever asks again until nothing is left to say gets the same, in the same order, as in one answer."""
    dice = random.Random(seed)
    queues = [await queue(connection, name) for name in ("a", "b")]
    for number in range(60):
        body = (b"%d " % number).ljust(dice.choice((1, 20, 90)), b".")
        receiver = dice.choice((0, 0, 0, 7))
        await put_many(
            connection, Run(dice.choice(queues), [body], dice.randint(1, 3), dice.choice((0, 4)), receiver)
        )
    asks = [
        Ask(where, who, sender, mode=mode, limit=1000)
        for where in queues
        for who, sender, mode in ((7, 4, 1), (7, 0, 2), (0, 0, 1))
    ]
    whole = connection.transaction()
    await whole.start()
    expected = [await taken(connection, ask) for ask in asks]
    await whole.rollback()
    got: list[list[bytes]] = [[] for _ in asks]
    for n, ask in enumerate(asks):
        while rows := await take_many(connection, ask, most_bytes=100):
            messages = [row["message"] for row in rows if row["request"] == 1]
            got[n] += messages
            assert len(messages) == 1 or 0 < sum(map(len, messages)) <= 100
            if MORE not in [row["request"] for row in rows]:
                break
    assert got == expected


async def test_a_bounded_answer_for_several(connection: Connection) -> None:
    """Requests share the bytes of an answer in their order; it is said when somebody has to ask again."""
    jobs, more = await queue(connection), await queue(connection, "more")
    await put_many(connection, Run(jobs, [b"a" * 60, b"b" * 60, b"c" * 60]), Run(more, [b"d" * 30]))

    async def ask() -> list[tuple[int, bytes | None]]:
        rows = await take_many(connection, Ask(more), Ask(jobs), Ask(jobs, 3), most_bytes=100)
        return [(row["request"], row["message"] and row["message"][:1]) for row in rows]

    assert await ask() == [(1, b"d"), (2, b"a"), (MORE, None)]
    assert await ask() == [(2, b"b"), (MORE, None)]
    assert await ask() == [(2, b"c")]


async def test_a_message_that_is_larger_than_the_bound(connection: Connection) -> None:
    """There is always at least one message in an answer, and its headers count."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"a" * 500, b"b" * 500]))
    await connection.execute(
        """update nuncius.messages set headers = '{"x": "y"}', message = '' where message like 'b%'"""
    )
    rows = await take_many(connection, Ask(jobs, limit=5), most_bytes=1)
    assert [(row["request"], row["message"]) for row in rows] == [(1, b"a" * 500), (MORE, None)]
    assert [row["request"] for row in await take_many(connection, Ask(jobs, limit=5), most_bytes=1)] == [
        1,
        MORE,
    ]


async def test_taking_from_a_queue_that_is_not_there(connection: Connection) -> None:
    """A queue that does not exist is told apart from one that is empty."""
    jobs = await queue(connection)
    rows = await take_many(connection, Ask(99), Ask(jobs))
    assert [(row["request"], row["queue_id"]) for row in rows] == [(MISSING, 99)]
    assert await connection.fetch("select * from nuncius.read_message_by_priority(99, 0, 0)") == []


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_counts_where_snapshots_are_kept(connection: Connection, other: Connection, level: str) -> None:
    """Counts that were stored since the snapshot cannot be seen in it: they are refused, not stored twice."""
    jobs, alice = await queue(connection), await publisher(connection)
    await connection.execute(f"begin isolation level {level}")
    await connection.fetchval("select count(*) from nuncius.messages")
    await put_many(other, Run(jobs, [b"1", b"2", b"3"], publisher=alice, count=1))
    with pytest.raises(asyncpg.FeatureNotSupportedError, match="READ COMMITTED"):
        await put_many(connection, Run(jobs, [b"2"], publisher=alice, count=2))
    await connection.execute("rollback")
    assert await depth(other, jobs) == 3


async def test_an_old_snapshot_of_a_queue(connection: Connection, other: Connection) -> None:
    """Where snapshots are kept, a put into a queue that was deleted since, and a take of what is gone since,
    are errors to retry."""
    jobs, gone = await queue(connection), await queue(connection, "gone")
    await put_many(connection, Run(jobs, [b"a"]))
    for late in (put_many(connection, Run(gone, [b"x"])), take_many(connection, Ask(jobs))):
        await connection.execute("begin isolation level repeatable read")
        await connection.fetchval("select count(*) from nuncius.messages")
        await other.execute("select nuncius.delete_queue($1)", gone)
        await taken(other, Ask(jobs))
        await put_many(other, Run(jobs, [b"b"]))
        await put_many(connection, Run(jobs, [b"mine"]))
        with pytest.raises(asyncpg.SerializationError):
            await late
        await connection.execute("rollback")
    assert await connection.fetchval("select count(*) from nuncius.messages") == 1


async def test_starting_after_a_place(connection: Connection) -> None:
    """A taker that remembers what it took starts after it, by priority and receiver."""
    jobs = await queue(connection)
    ids = (await put_many(connection, Run(jobs, [b"a", b"b", b"c"], 5))).ids
    other = (await put_many(connection, Run(jobs, [b"d", b"e"], 6, receiver=3))).ids
    after = [0] * 20
    after[5 - 1] = ids[1]
    after[10 + 6 - 1] = other[0]
    assert await taken(connection, Ask(jobs, 3, limit=9, after=after)) == [b"e", b"c"]


@pytest.mark.parametrize("seed", range(10))
async def test_a_taker_that_remembers_misses_nothing(connection: Connection, seed: int) -> None:
    """Whatever is put and taken in between, takers find what they would find without their memory."""
    dice, jobs, taker = random.Random(seed), await queue(connection), Taker()
    kinds = [(receiver, mode) for receiver in (0, 7, 8) for mode in (BY_PRIORITY, BY_TIME)]
    left: list[tuple[int, int, bytes]] = []  # receiver, priority, body; oldest first
    for number in range(60):
        put = [
            (dice.choice((0, 7, 8)), dice.randint(1, 10), b"%d %d" % (number, n))
            for n in range(dice.randint(0, 4))
        ]
        await put_many(
            connection, *(Run(jobs, [body], priority, receiver=who) for who, priority, body in put)
        )
        left += put
        asked = [(*kind, dice.randint(1, 3)) for kind in dice.sample(kinds, dice.randint(1, 3))]
        calls = [TakeCall(lambda _: None, None, jobs, who, 0, 0, mode, limit) for who, mode, limit in asked]
        found = await taker.take(connection, calls, False)
        for (who, mode, limit), messages in zip(asked, found, strict=True):
            fit = [one for one in left if one[0] in (0, who)]
            if mode == BY_PRIORITY:
                fit.sort(key=lambda one: -one[1])
            assert [message.body for message in messages] == [body for _, _, body in fit[:limit]]
            left = [one for one in left if one not in fit[:limit]]


async def test_one_takes_at_a_time(connection: Connection, other: Connection, observer: Connection) -> None:
    """A second taker waits for the first, and gets what that one leaves: no false "nothing there"."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"a"], 9))
    await connection.execute("begin")
    assert await taken(connection, Ask(jobs)) == [b"a"]
    second = asyncio.ensure_future(taken(other, Ask(jobs)))
    await until_waiting(observer, other.get_server_pid())
    await connection.execute("rollback")
    assert await second == [b"a"]


HELD_UP = """
alter function nuncius.join_requests rename to join_at_once;
create function nuncius.join_requests(
    nuncius.take_request[], out joined nuncius.take_request[], out leads integer[]
) language plpgsql as $$
begin
    select j.joined, j.leads into joined, leads from nuncius.join_at_once($1) j;
    perform pg_advisory_lock_shared(1, 1);
end $$
"""


@pytest.mark.parametrize("mode", [1, 2])
async def test_what_comes_between_two_looks(
    connection: Connection, other: Connection, observer: Connection, mode: int
) -> None:
    """A reader for whom nothing was addressed gets nothing younger than what is addressed to it meanwhile."""
    jobs, old = await queue(connection), [b"%d" % number for number in range(33)]
    await put_many(connection, Run(jobs, old))
    await connection.execute(HELD_UP)
    await other.execute("select pg_advisory_lock(1, 1)")
    asks = Ask(jobs, 7, mode=mode, limit=20), Ask(jobs, 8, mode=mode, limit=20)
    taking = asyncio.ensure_future(take_many(connection, *asks))
    await until_waiting(observer, connection.get_server_pid())
    await put_many(other, Run(jobs, [b"for 7"], receiver=7))
    await put_many(other, Run(jobs, [b"for anyone"]), Run(jobs, [b"urgent"], priority=9))
    await other.execute("select pg_advisory_unlock(1, 1)")
    rows = await taking
    assert [[row["message"] for row in rows if row["request"] == n] for n in (1, 2)] == [old[:20], old[20:]]
    expected = {1: [b"urgent", b"for 7", b"for anyone"], 2: [b"for 7", b"for anyone", b"urgent"]}
    assert await taken(other, Ask(jobs, 7, mode=mode, limit=9)) == expected[mode]


async def test_takers_do_not_wait_for_putters(connection: Connection, other: Connection) -> None:
    """Putting and taking hold different locks."""
    jobs = await queue(connection)
    await put_many(connection, Run(jobs, [b"a"]))
    await connection.execute("begin")
    await put_many(connection, Run(jobs, [b"b"]))
    assert await taken(other, Ask(jobs, limit=9)) == [b"a"]
    await connection.execute("commit")
    assert await taken(other, Ask(jobs, limit=9)) == [b"b"]


async def test_busy_takes_are_told_apart(connection: Connection, other: Connection) -> None:
    """Who does not wait learns which queues are held, and gets messages of the others."""
    jobs, more = await queue(connection), await queue(connection, "more")
    await put_many(connection, Run(jobs, [b"a", b"b"]), Run(more, [b"x"]))
    await connection.execute("begin")
    await taken(connection, Ask(jobs))
    await other.execute("set lock_timeout = '20ms'")
    rows = await take_many(other, Ask(jobs), Ask(more), Ask(jobs, 4), wait=False)
    assert {row["queue_id"] for row in rows if row["request"] == 0} == {jobs}
    assert [(row["request"], row["message"]) for row in rows if row["request"]] == [(2, b"x")]
    await connection.execute("rollback")
    assert await taken(other, Ask(jobs, limit=9)) == [b"a", b"b"]


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
async def test_a_put_in_a_transaction_of_ones_own(
    connection: Connection, other: Connection, observer: Connection, outcome: str
) -> None:
    """Ids are in commit order: nobody else puts into the queue before an open put has ended."""
    jobs = await queue(connection)
    await connection.execute("begin")
    await put_many(connection, Run(jobs, [b"first"]))
    second = asyncio.ensure_future(put_many(other, Run(jobs, [b"second"])))
    await until_waiting(observer, other.get_server_pid())
    assert await taken(observer, Ask(jobs)) == []
    await connection.execute(outcome)
    await second
    expected = [b"first", b"second"] if outcome == "commit" else [b"second"]
    assert await taken(observer, Ask(jobs, limit=9)) == expected


async def test_many_putters_and_takers(connect: Connect, connection: Connection) -> None:
    """Under contention every message is taken once, and each taker sees each putter in order."""
    jobs = await queue(connection)
    putters, takers = 3, 3
    total = putters * 40

    async def put(name: int) -> None:
        own = await connect()
        for n in range(40):
            await put_many(own, Run(jobs, [b"%d %d" % (name, n)], 1 + name))

    seen: list[list[tuple[int, int]]] = []

    async def take() -> None:
        own = await connect()
        mine: list[tuple[int, int]] = []
        seen.append(mine)
        while sum(map(len, seen)) < total:
            for body in await taken(own, Ask(jobs, limit=2)):
                name, n = body.split()
                mine.append((int(name), int(n)))

    async with asyncio.timeout(60):
        await asyncio.gather(*map(put, range(putters)), *(take() for _ in range(takers)))
    assert max(Counter(pair for mine in seen for pair in mine).values()) == 1
    for mine in seen:
        for name in range(putters):
            numbers = [n for who, n in mine if who == name]
            assert numbers == sorted(numbers)


# Looking after


async def test_purge_waits_for_who_is_at_work(
    connection: Connection, other: Connection, observer: Connection
) -> None:
    """A purge takes away what was put before it, also what is still under way."""
    jobs = await queue(connection)
    await connection.execute("begin")
    await put_many(connection, Run(jobs, [b"a"]))
    purge = asyncio.ensure_future(other.fetchval("select nuncius.purge_queues($1)", [jobs]))
    await until_waiting(observer, other.get_server_pid())
    await connection.execute("commit")
    assert await purge == 1
    assert await depth(observer, jobs) == 0


async def test_browsing_takes_nothing(connection: Connection) -> None:
    """One may look at messages, oldest first, page by page."""
    jobs = await queue(connection)
    ids = (await put_many(connection, Run(jobs, [b"a", b"b", b"c"]))).ids
    page = await connection.fetch("select * from nuncius.browse_queues($1, 0, 2)", [jobs])
    assert [row["message"] for row in page] == [b"a", b"b"]
    rest = await connection.fetch("select * from nuncius.browse_queues($1, $2)", [jobs], ids[1])
    assert [row["message"] for row in rest] == [b"c"]
    assert await depth(connection, jobs) == 3
